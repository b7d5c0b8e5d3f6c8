/* Binding: a call's arguments to the flat array of a code object's bound locals, and back.
 *
 * The array holds positional-only, ordinary, keyword-only arguments, then the *args tuple and the
 * **kwargs dict where the code has them: the order of the frame's locals.
 */
#include "dnb.h"

Py_ssize_t dnb_arg_count(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
}

void dnb_bound_clear(DnbBound *bound)
{
    if (!bound->values) return;
    for (Py_ssize_t i = 0; i < bound->n; i++) Py_XDECREF(bound->values[i]);
    if (bound->values != bound->small) PyMem_Free(bound->values);
    bound->values = NULL;
}

/* Index of the parameter a keyword names, -1 when there is none, -2 on error. */
static Py_ssize_t find_keyword(PyCodeObject *code, PyObject *keyword)
{
    Py_ssize_t end = code->co_argcount + code->co_kwonlyargcount;
    for (Py_ssize_t i = code->co_posonlyargcount; i < end; i++)
        if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == keyword) return i;
    for (Py_ssize_t i = code->co_posonlyargcount; i < end; i++) {
        int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(code->co_localsplusnames, i), keyword, Py_EQ);
        if (same < 0) return -2;
        if (same) return i;
    }
    return -1;
}

/* 1 bound, 0 the call does not fit, -1 error */
static int bind_keywords(PyCodeObject *code, PyObject *const *values, PyObject *kwnames, DnbBound *out, PyObject *extra)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        if (!PyUnicode_Check(name)) return 0;
        Py_ssize_t i = find_keyword(code, name);
        if (i == -2) return -1;
        if (i >= 0) {
            if (out->values[i]) return 0;
            out->values[i] = Py_NewRef(values[k]);
        } else if (!extra || PyDict_SetItem(extra, name, values[k]) < 0) {
            return extra ? -1 : 0;
        }
    }
    return 1;
}

static int bind_defaults(PyFunctionObject *fn, PyCodeObject *code, DnbBound *out)
{
    Py_ssize_t count = fn->func_defaults ? PyTuple_GET_SIZE(fn->func_defaults) : 0;
    Py_ssize_t first = code->co_argcount - count;
    for (Py_ssize_t i = 0; i < code->co_argcount; i++) {
        if (out->values[i]) continue;
        if (i < first) return 0;
        out->values[i] = Py_NewRef(PyTuple_GET_ITEM(fn->func_defaults, i - first));
    }
    for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        if (out->values[i]) continue;
        PyObject *value = fn->func_kwdefaults
                              ? PyDict_GetItemWithError(fn->func_kwdefaults, PyTuple_GET_ITEM(code->co_localsplusnames, i))
                              : NULL;
        if (!value) return PyErr_Occurred() ? -1 : 0;
        out->values[i] = Py_NewRef(value);
    }
    return 1;
}

static int bind_all(PyFunctionObject *fn, PyCodeObject *code, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                    DnbBound *out)
{
    Py_ssize_t named = code->co_argcount + code->co_kwonlyargcount, taken = nargs < code->co_argcount ? nargs : code->co_argcount;
    bool varargs = code->co_flags & CO_VARARGS;
    PyObject *extra = NULL;
    for (Py_ssize_t i = 0; i < taken; i++) out->values[i] = Py_NewRef(args[i]);
    if (varargs) {
        PyObject *rest = PyTuple_New(nargs - taken);
        if (!rest) return -1;
        for (Py_ssize_t i = taken; i < nargs; i++) PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(args[i]));
        out->values[named] = rest;
    } else if (nargs > taken) {
        return 0;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
        if (!(extra = PyDict_New())) return -1;
        out->values[named + varargs] = extra;
    }
    if (kwnames) {
        int bound = bind_keywords(code, args + nargs, kwnames, out, extra);
        if (bound <= 0) return bound;
    }
    return bind_defaults(fn, code, out);
}

/* Binds a call of the function `fn`. 1: `out` is filled (values NULL: the argument array fits as it
 * is); 0: the call does not fit, so calling fn raises the right TypeError; -1: exception. */
int dnb_bind(PyObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, DnbBound *out)
{
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)fn)->func_code;
    out->values = NULL;
    if (kwnames && PyTuple_GET_SIZE(kwnames) == 0) kwnames = NULL;
    if (!kwnames && nargs == code->co_argcount && !code->co_kwonlyargcount &&
        !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS))) {
        out->n = nargs;
        return 1;
    }
    Py_ssize_t n = dnb_arg_count(code);
    PyObject **values = n <= (Py_ssize_t)Py_ARRAY_LENGTH(out->small) ? out->small : (PyObject **)PyMem_Malloc(n * sizeof(PyObject *));
    if (!values) {
        PyErr_NoMemory();
        return -1;
    }
    memset(values, 0, n * sizeof(PyObject *));
    out->values = values;
    out->n = n;
    Py_INCREF(code);
    int bound = bind_all((PyFunctionObject *)fn, code, args, nargs, kwnames, out);
    Py_DECREF(code);
    if (bound <= 0) dnb_bound_clear(out);
    return bound;
}

/* Appends the items of a **kwargs dict to a call under construction. */
static int spread_kwargs(PyObject *kwargs, PyObject *names, PyObject *values)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(kwargs, &at, &key, &value))
        if (PyList_Append(names, key) < 0 || PyList_Append(values, value) < 0) return -1;
    return 0;
}

/* Calls function `fn` with the flat array of its bound locals. */
PyObject *dnb_call_flat(PyObject *fn, PyObject *const *locals, Py_ssize_t n)
{
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)fn)->func_code;
    bool varargs = code->co_flags & CO_VARARGS, varkw = code->co_flags & CO_VARKEYWORDS;
    if (!varargs && !varkw && !code->co_kwonlyargcount) return PyObject_Vectorcall(fn, locals, n, NULL);
    if (n != dnb_arg_count(code)) {
        PyErr_Format(PyExc_SystemError, "dynamo_nb: %U needs %zd bound locals, got %zd", code->co_qualname, dnb_arg_count(code), n);
        return NULL;
    }
    Py_ssize_t named = code->co_argcount + code->co_kwonlyargcount;
    PyObject *result = NULL, *kwnames = NULL, *values = PyList_New(0), *names = PyList_New(0);
    if (!values || !names) goto done;
    for (Py_ssize_t i = 0; i < code->co_argcount; i++)
        if (PyList_Append(values, locals[i]) < 0) goto done;
    if (varargs) {
        PyObject *rest = locals[named];
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rest); i++)
            if (PyList_Append(values, PyTuple_GET_ITEM(rest, i)) < 0) goto done;
    }
    Py_ssize_t positional = PyList_GET_SIZE(values);
    for (Py_ssize_t i = code->co_argcount; i < named; i++)
        if (PyList_Append(values, locals[i]) < 0 || PyList_Append(names, PyTuple_GET_ITEM(code->co_localsplusnames, i)) < 0) goto done;
    if (varkw && spread_kwargs(locals[named + varargs], names, values) < 0) goto done;
    kwnames = PyList_AsTuple(names);
    if (kwnames) result = PyObject_Vectorcall(fn, ((PyListObject *)values)->ob_item, positional, kwnames);
done:
    Py_XDECREF(kwnames);
    Py_XDECREF(names);
    Py_XDECREF(values);
    return result;
}
