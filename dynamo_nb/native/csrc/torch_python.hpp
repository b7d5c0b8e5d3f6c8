// The few names of libtorch_python that the runtime uses.
//
// Declared here because torch's own headers for them bring in pybind11: 15 seconds for every file. The build is
// tied to one torch release (setup.py), and tests/native/test_program_*.py fail if one of these reads differently.
#pragma once
#include <Python.h>
#include <ATen/core/TensorBase.h>
#include <c10/util/Exception.h>
#include <exception>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
PyObject *THPVariable_Wrap(const at::TensorBase &tensor);  // the tensor's object, made when it has none
PyObject *THPVariable_Wrap(at::TensorBase &&tensor);

// Python's current exception, taken from it when this is made and carried through C++. The GIL must be held there.
struct python_error : std::exception {
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    std::string message;

    python_error();
    python_error(python_error &&other) noexcept;
    ~python_error() override;  // takes the GIL
    const char *what() const noexcept override { return message.c_str(); }
};

namespace torch {

void translate_exception_to_python(const std::exception_ptr &error);  // sets Python's current exception

// Collects the warnings of operators while it stands; its destructor issues them in Python, and throws where Python makes
// one of them an error. The GIL must be held at both ends.
class PyWarningHandler {
    struct Buffer : c10::WarningHandler {
        ~Buffer() override = default;
        void process(const c10::Warning &warning) override;
        std::vector<c10::Warning> warnings;
    };
    Buffer buffer;
    c10::WarningHandler *before;
    bool in_exception = false;

public:
    PyWarningHandler() noexcept(true);
    ~PyWarningHandler() noexcept(false);
    void set_in_exception() { in_exception = true; }
};

}  // namespace torch
#pragma GCC visibility pop
