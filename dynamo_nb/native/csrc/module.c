/* The extension module dynamo_nb.native._native. */
#include "dnb.h"

static PyObject *build_facts(PyObject *module, PyObject *unused)
{
    return Py_BuildValue("{s:i,s:i}", "python_minor", PY_MINOR_VERSION, "python_hex", PY_VERSION_HEX);
}

/* What rewritten code reads a container's item with: past any __getitem__ of a subclass, as guards do. */
static PyObject *dict_item(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2) return PyErr_Format(PyExc_TypeError, "dict_item expected 2 arguments, got %zd", n);
    if (!PyDict_Check(args[0])) return PyObject_GetItem(args[0], args[1]);
    PyObject *value = PyDict_GetItemWithError(args[0], args[1]);
    if (!value && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, args[1]);
    return Py_XNewRef(value);
}

static PyObject *sequence_item(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2) return PyErr_Format(PyExc_TypeError, "sequence_item expected 2 arguments, got %zd", n);
    if (!PyList_Check(args[0]) && !PyTuple_Check(args[0])) return PyObject_GetItem(args[0], args[1]);
    Py_ssize_t index = PyNumber_AsSsize_t(args[1], PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) return NULL;
    if (index < 0) index += PySequence_Fast_GET_SIZE(args[0]);
    if (index < 0 || index >= PySequence_Fast_GET_SIZE(args[0]))
        return PyErr_Format(PyExc_IndexError, "%s index out of range", PyList_Check(args[0]) ? "list" : "tuple");
    return Py_NewRef(PySequence_Fast_GET_ITEM(args[0], index));
}

static PyMethodDef module_methods[] = {
    {"dict_item", (PyCFunction)(void *)dict_item, METH_FASTCALL, "dict_item(mapping, key): dict.__getitem__ of a dict, mapping[key] of anything else."},
    {"sequence_item", (PyCFunction)(void *)sequence_item, METH_FASTCALL, "sequence_item(sequence, index): list's or tuple's own item, else sequence[index]."},
    {"build_facts", build_facts, METH_NOARGS, "What this build was made for."},
    {NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dynamo_nb.native._native",
                                        "Frame hook, compiled functions, cache entries, guards and compiled graphs.", -1, module_methods};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (dnb_state_init(module) < 0 || !dnb_region_module_init(module) || dnb_lock_init(module) < 0 || dnb_driver_init(module) < 0 ||
        dnb_compiled_init(module) < 0 || dnb_guards_init(module) < 0 || dnb_program_init(module) < 0 || dnb_memory_init(module) < 0 ||
        dnb_autograd_init(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
