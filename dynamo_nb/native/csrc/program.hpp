// The native runtime of compiled graphs: what the files of the Program type share.
//
// program.cpp        the Python type: arguments in, steps run, results out
// program_parse.cpp  Python tuples -> steps, with every tensor slot's life checked
// program_steps.cpp  memory, kernels and views
// program_aten.cpp   operators called through the dispatcher
// program_memory.cpp where the memory of new tensors comes from
// program_autograd.cpp  graphs with gradients, of two programs or anything else that is called as one
#pragma once
#include "dnb.h"
#include <ATen/core/TensorBase.h>
#include <memory>
#include <string>
#include <vector>

namespace dnb {

// Why a program can't be built; `type` is the Python exception. Where Python has raised one already, type is nullptr.
struct BadProgram {
    PyObject *type;
    std::string text;
};
[[noreturn]] void bad_value(const std::string &text);
[[noreturn]] void bad_type(const std::string &text);
[[noreturn]] void python_failed();

using Ints = c10::SmallVector<int64_t, 8>;

// A number known when the program is built, or one of the call's integers.
struct IntExpr {
    int64_t value = 0;
    int index = -1;  // of the integer; -1: `value`
    int64_t at(const int64_t *ints) const { return index < 0 ? value : ints[index]; }
};

struct IntList {
    std::vector<IntExpr> exprs;
    Ints values;         // filled in where all are known
    bool known = true;
    c10::IntArrayRef at(const int64_t *ints, Ints &room) const
    {
        if (known) return values;
        room.resize(exprs.size());
        for (size_t i = 0; i < exprs.size(); i++) room[i] = exprs[i].at(ints);
        return room;
    }
};

// An argument that is a tensor.
struct Held {
    PyObject *object = nullptr;  // nullptr once dropped
    bool owned = false;          // the call has a reference; else the caller keeps it
    bool sole = false;           // nobody else has one: dropping it frees the tensor
};

class ReleasedGil {
    PyThreadState *state;

public:
    ReleasedGil() : state(PyEval_SaveThread()) {}
    ~ReleasedGil() { PyEval_RestoreThread(state); }
    ReleasedGil(const ReleasedGil &) = delete;
    void take() { PyEval_RestoreThread(state); }
    void release() { state = PyEval_SaveThread(); }
};

struct Input {
    int slot = -1, integer = -1;  // one of them
    bool retained = false;        // the slot has a reference of its own; else it borrows the argument's
};

struct Output {
    enum Kind { TENSOR, INTEGER, CONSTANT } kind = CONSTANT;
    int index = 0;
    bool last = false;            // no later output takes the same slot, and the slot is no borrowed one
    PyObject *constant = nullptr; // owned by the program
};

struct Program;

// One call. Everything that a call changes is here, so that a program can run in many threads and inside itself.
struct Frame {
    const Program &program;
    at::TensorBase *slots;
    int64_t *ints;
    Held *held;  // one per input
    ReleasedGil *gil = nullptr;
    void set(int slot, at::TensorBase &&tensor) { slots[slot] = std::move(tensor); }
};

struct Step {
    virtual ~Step() = default;
    virtual void run(Frame &frame) const = 0;  // without the GIL; throws C++ exceptions
};
using StepPtr = std::unique_ptr<Step>;

// How an argument must be laid out for the kernels.
struct Expected {
    int input;
    at::ScalarType dtype;
    IntList sizes, strides;
    bool agrees(const at::TensorBase &tensor, const int64_t *ints) const;
};

struct Program {
    void (*derive)(int64_t *) = nullptr;  // integers from those that are arguments
    std::vector<Expected> expected;
    std::vector<Input> inputs;
    std::vector<StepPtr> steps;
    std::vector<Output> outputs;
    int slots = 0, ints = 0;
    ~Program();
};

// What is known while a program is read: which slots hold a tensor at this point.
struct Builder {
    Program &program;
    std::vector<char> full;
    std::vector<int> input_of;  // input whose slot this is, or -1
    explicit Builder(Program &program);
    int slot_number(PyObject *number) const;
    int reads(PyObject *number, bool retain);  // a slot that must be full; retain: the step counts references to its tensor
    int writes(PyObject *number);
    void empties(int slot);
    IntExpr int_expr(PyObject *form) const;
    IntList int_list(PyObject *form) const;
};

// helpers for reading tuples
enum class Ref { NONE, TENSOR, INTEGER };
Ref ref_kind(PyObject *form);                        // ("t", slot), ("i", k), or neither
PyObject *items_of(PyObject *form, const char *what);  // a tuple or list itself
int64_t number_of(PyObject *form, const char *what);
int integer_index(const Builder &builder, PyObject *ref);
void *address_of(PyObject *form);
std::string type_name(PyObject *object);

// Steps from their tuples (program_steps.cpp); the tuple's name has been looked at.
StepPtr make_ints_step(Builder &builder, PyObject *form);
StepPtr make_expect_step(Builder &builder, PyObject *form);
StepPtr make_alloc_step(Builder &builder, PyObject *form);
StepPtr make_kernel_step(Builder &builder, PyObject *form);
StepPtr make_checked_step(Builder &builder, PyObject *form);
StepPtr make_view_step(Builder &builder, PyObject *form);
StepPtr make_same_step(Builder &builder, PyObject *form);
StepPtr make_layout_step(Builder &builder, PyObject *form);
StepPtr make_free_step(Builder &builder, PyObject *form);

// program_aten.cpp
StepPtr make_aten_step(Builder &builder, PyObject *form);
c10::Allocator *program_allocator();
StepPtr make_empty_strided_step(int slot, IntList sizes, IntList strides, PyObject *dtype, PyObject *device);

// program_parse.cpp
void parse_program(Program &program, PyObject *inputs, PyObject *slots, PyObject *ints, PyObject *steps, PyObject *outputs);

// program.cpp
bool is_program(PyObject *object);
PyObject *run_program(PyObject *program, PyObject *const *args, Py_ssize_t n);  // as program.call(*args)

// tensor.cpp
bool is_tensor(PyObject *object);
inline const at::TensorBase &tensor_in(PyObject *object) { return *reinterpret_cast<at::TensorBase *>(object + 1); }

}  // namespace dnb
