/* The extension module dynamo_nb.native._native. */
#include "dnb.h"

static PyObject *build_facts(PyObject *module, PyObject *unused)
{
    return Py_BuildValue("{s:i,s:i}", "python_minor", PY_MINOR_VERSION, "python_hex", PY_VERSION_HEX);
}

static PyMethodDef module_methods[] = {{"build_facts", build_facts, METH_NOARGS, "What this build was made for."}, {NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dynamo_nb.native._native",
                                        "Frame hook, compiled functions, cache entries, guards and compiled graphs.", -1, module_methods};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (dnb_state_init(module) < 0 || !dnb_region_module_init(module) || dnb_lock_init(module) < 0 || dnb_driver_init(module) < 0 ||
        dnb_compiled_init(module) < 0 || dnb_guards_init(module) < 0 || dnb_program_init(module) < 0 || dnb_memory_init(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
