// Reads a program from Python tuples.
//
// In: the tuples described in _native.pyi. Out: steps. A program is straight-line, so that here, once, it is checked that
// no step reads an empty slot; errors name the step.
#include "program.hpp"

namespace dnb {

void bad_value(const std::string &text) { throw BadProgram{PyExc_ValueError, text}; }
void bad_type(const std::string &text) { throw BadProgram{PyExc_TypeError, text}; }
void python_failed() { throw BadProgram{nullptr, ""}; }

std::string type_name(PyObject *object) { return Py_TYPE(object)->tp_name; }

int64_t number_of(PyObject *form, const char *what)
{
    if (!PyLong_Check(form)) bad_type(std::string(what) + " must be an int, got " + type_name(form));
    long long value = PyLong_AsLongLong(form);
    if (value == -1 && PyErr_Occurred()) python_failed();
    return value;
}

void *address_of(PyObject *form)
{
    if (!PyLong_Check(form)) bad_type("a function's address must be an int, got " + type_name(form));
    void *address = PyLong_AsVoidPtr(form);
    if (!address && PyErr_Occurred()) python_failed();
    if (!address) bad_value("a function's address is 0: the kernel wasn't found in its library");
    return address;
}

PyObject *items_of(PyObject *form, const char *what)
{
    if (!PyTuple_Check(form) && !PyList_Check(form)) bad_type(std::string(what) + " must be a tuple, got " + type_name(form));
    return form;
}

Ref ref_kind(PyObject *form)
{
    if (!PyTuple_Check(form) || PyTuple_GET_SIZE(form) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(form, 0))) return Ref::NONE;
    PyObject *name = PyTuple_GET_ITEM(form, 0);
    if (!PyUnicode_CompareWithASCIIString(name, "t")) return Ref::TENSOR;
    if (!PyUnicode_CompareWithASCIIString(name, "i")) return Ref::INTEGER;
    return Ref::NONE;
}

int integer_index(const Builder &builder, PyObject *ref)
{
    int64_t k = number_of(PyTuple_GET_ITEM(ref, 1), "an integer's number");
    if (k < 0 || k >= builder.program.ints)
        bad_value("there is no integer " + std::to_string(k) + ": the program has " + std::to_string(builder.program.ints));
    return (int)k;
}

// ---- builder ----
Builder::Builder(Program &program) : program(program), full(program.slots, 0), input_of(program.slots, -1) {}

int Builder::slot_number(PyObject *number) const
{
    int64_t slot = number_of(number, "a slot");
    if (slot < 0 || slot >= program.slots)
        bad_value("there is no slot " + std::to_string(slot) + ": the program has " + std::to_string(program.slots));
    return (int)slot;
}

int Builder::reads(PyObject *number, bool retain)
{
    int slot = slot_number(number);
    if (!full[slot]) bad_value("slot " + std::to_string(slot) + " is read while it holds no tensor");
    if (retain && input_of[slot] >= 0) program.inputs[input_of[slot]].retained = true;
    return slot;
}

int Builder::writes(PyObject *number)
{
    int slot = slot_number(number);
    if (input_of[slot] >= 0) program.inputs[input_of[slot]].retained = true;
    full[slot] = 1;
    return slot;
}

void Builder::empties(int slot) { full[slot] = 0; }

IntExpr Builder::int_expr(PyObject *form) const
{
    IntExpr expr;
    if (ref_kind(form) == Ref::INTEGER) expr.index = integer_index(*this, form);
    else if (PyLong_Check(form)) expr.value = number_of(form, "a number");
    else bad_type("expected an int or ('i', k), got " + type_name(form));
    return expr;
}

IntList Builder::int_list(PyObject *form) const
{
    IntList list;
    PyObject *items = items_of(form, "a list of ints");
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
        list.exprs.push_back(int_expr(PySequence_Fast_GET_ITEM(items, i)));
        list.values.push_back(list.exprs.back().value);
        if (list.exprs.back().index >= 0) list.known = false;
    }
    return list;
}

// ---- the parts of a program ----
static void parse_inputs(Builder &builder, PyObject *inputs)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        PyObject *form = PyTuple_GET_ITEM(inputs, i);
        Input input;
        switch (ref_kind(form)) {
        case Ref::TENSOR:
            input.slot = builder.slot_number(PyTuple_GET_ITEM(form, 1));
            if (builder.full[input.slot]) bad_value("two inputs share slot " + std::to_string(input.slot));
            builder.full[input.slot] = 1;
            builder.input_of[input.slot] = (int)i;
            break;
        case Ref::INTEGER: input.integer = integer_index(builder, form); break;
        case Ref::NONE: bad_type("an input must be ('t', slot) or ('i', k)");
        }
        builder.program.inputs.push_back(input);
    }
}

static StepPtr parse_step(Builder &builder, PyObject *form)
{
    static const struct {
        const char *name;
        Py_ssize_t size;  // of the tuple; 0: any
        StepPtr (*make)(Builder &, PyObject *);
    } kinds[] = {{"ints", 2, make_ints_step}, {"alloc", 6, make_alloc_step}, {"kernel", 6, make_kernel_step}, {"checked", 7, make_checked_step},
                 {"aten", 5, make_aten_step}, {"view", 6, make_view_step}, {"same", 3, make_same_step}, {"layout", 5, make_layout_step},
                 {"free", 0, make_free_step}, {"expect", 5, make_expect_step}};
    if (!PyTuple_Check(form) || !PyTuple_GET_SIZE(form) || !PyUnicode_Check(PyTuple_GET_ITEM(form, 0)))
        bad_type("a step must be a tuple that begins with its name");
    for (const auto &kind : kinds) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(form, 0), kind.name)) continue;
        if (kind.size && PyTuple_GET_SIZE(form) != kind.size)
            bad_value("expected " + std::to_string(kind.size) + " items, got " + std::to_string(PyTuple_GET_SIZE(form)));
        return kind.make(builder, form);
    }
    bad_value("unknown kind of step");
}

static std::string step_name(PyObject *form)
{
    if (!PyTuple_Check(form) || !PyTuple_GET_SIZE(form) || !PyUnicode_Check(PyTuple_GET_ITEM(form, 0))) return type_name(form);
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(form, 0));
    if (!name) python_failed();
    return name;
}

static void parse_steps(Builder &builder, PyObject *steps)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(steps); i++) {
        PyObject *form = PySequence_Fast_GET_ITEM(steps, i);
        try {
            if (StepPtr step = parse_step(builder, form)) builder.program.steps.push_back(std::move(step));
        } catch (BadProgram &problem) {
            if (problem.type) problem.text = "step " + std::to_string(i) + " (" + step_name(form) + "): " + problem.text;
            throw;
        }
    }
}

static void parse_outputs(Builder &builder, PyObject *outputs)
{
    Program &program = builder.program;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); i++) {
        PyObject *form = PyTuple_GET_ITEM(outputs, i);
        Output output;
        switch (ref_kind(form)) {
        case Ref::TENSOR:
            output.kind = Output::TENSOR;
            output.index = builder.reads(PyTuple_GET_ITEM(form, 1), false);
            break;
        case Ref::INTEGER:
            output.kind = Output::INTEGER;
            output.index = integer_index(builder, form);
            break;
        case Ref::NONE:
            if (form != Py_None && !PyBool_Check(form) && !PyLong_CheckExact(form) && !PyFloat_CheckExact(form))
                bad_type("output " + std::to_string(i) + " must be ('t', slot), ('i', k), None, an int, a float or a bool");
            output.constant = Py_NewRef(form);
        }
        program.outputs.push_back(output);
    }
    std::vector<char> taken(program.slots, 0);
    for (size_t i = program.outputs.size(); i-- > 0;) {
        Output &output = program.outputs[i];
        if (output.kind != Output::TENSOR) continue;
        int input = builder.input_of[output.index];
        output.last = !taken[output.index] && (input < 0 || program.inputs[input].retained);
        taken[output.index] = 1;
    }
}

static int count_of(PyObject *form, const char *what)
{
    int64_t count = number_of(form, what);
    if (count < 0 || count > INT32_MAX) bad_value(std::string(what) + " must be 0 or more, got " + std::to_string(count));
    return (int)count;
}

void parse_program(Program &program, PyObject *inputs, PyObject *slots, PyObject *ints, PyObject *steps, PyObject *outputs)
{
    if (!PyTuple_Check(inputs) || !PyTuple_Check(outputs)) bad_type("inputs and outputs must be tuples");
    program.slots = count_of(slots, "slots");
    program.ints = count_of(ints, "ints");
    Builder builder(program);
    parse_inputs(builder, inputs);
    parse_steps(builder, items_of(steps, "steps"));
    parse_outputs(builder, outputs);
}

}  // namespace dnb
