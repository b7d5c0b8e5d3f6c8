// The guard tree: nodes (one per source) with an accessor, leaves and children; see guards.cpp.
#pragma once
#include "dnb.h"
#include <memory>
#include <string>
#include <vector>

namespace dnb {

struct Node;

// One evaluation of a tree. Values that leaves compare with each other are kept in slots.
struct Check {
    PyObject *const *locals;  // flat array, or nullptr when `names` is given
    Py_ssize_t n;
    PyObject *names;          // dict of locals by name, or nullptr
    PyObject *globals, *builtins, *closure;
    PyObject **slots;         // strong references
};

// Outcome of every check: 1 holds, 0 does not (no exception set), -1 a Python exception is set.
struct Leaf {
    struct Words { std::string kind, text; };
    std::unique_ptr<Words> words;  // apart, so that checking touches little memory
    virtual ~Leaf() = default;
    virtual int check(PyObject *value, Check &check) = 0;
    virtual int traverse(visitproc, void *) { return 0; }
};

using LeafPtr = std::unique_ptr<Leaf>;

// Leaf from its native form, a tuple (name, *arguments) made by dynamo_nb.guards; nullptr with an exception.
LeafPtr make_leaf(PyObject *form);

// An object compared by identity: held weakly where it can die, so that the guard does not keep it.
struct Identity {
    PyObject *strong = nullptr, *weak = nullptr;
    bool set(PyObject *object);  // false with an exception when it can't be referenced weakly
    bool is(PyObject *object) const
    {
        return strong ? strong == object : weak && object != Py_None && PyWeakref_GET_OBJECT(weak) == object; /* dead: None */
    }
    int traverse(visitproc visit, void *arg) { Py_VISIT(strong); return 0; }
    Identity() = default;
    Identity(const Identity &) = delete;
    Identity(Identity &&other) noexcept : strong(other.strong), weak(other.weak) { other.strong = other.weak = nullptr; }
    ~Identity() { Py_XDECREF(strong); Py_XDECREF(weak); }
};

// Compares by content, type-strictly (content.cpp).
struct Content {
    virtual ~Content() = default;
    virtual int equals(PyObject *value) = 0;
    virtual int traverse(visitproc, void *) { return 0; }
};
std::unique_ptr<Content> make_content(PyObject *value);  // nullptr with TypeError
int content_init(PyObject *module);

// tensor.cpp
LeafPtr make_tensor_leaf(PyObject *form);
bool is_tensor(PyObject *object);
bool tensor_property(PyObject *tensor, int property, Py_ssize_t index, int64_t *out);
enum { PROP_SIZE = 0, PROP_STRIDE = 1, PROP_OFFSET = 2 };
void *tensor_identity(PyObject *tensor);
// Bytes the tensor can touch as [low, high) and its storage; false when it has none.
bool tensor_extent(PyObject *tensor, void **storage, uintptr_t *low, uintptr_t *high);
int tensor_init(PyObject *module);

// shape.cpp, state.cpp of the guards
LeafPtr make_shape_leaf(PyObject *form);
LeafPtr make_global_state_leaf(PyObject *form);
PyObject *read_global_state();
int global_state_init(PyObject *module);

}  // namespace dnb
