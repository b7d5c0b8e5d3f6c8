# Sourced by ./tutorial and ./check: makes a virtual environment that has dynamo_nb with the given extra.
#
# In: $1, the extra (tutorial or test); VENV, the environment's folder (default .venv); PYTHON, the interpreter
# to make it with (default python3.11, else python3). Out: $python, the environment's interpreter.
# What is installed already is left alone, so a torch build put there first stays.

venv="${VENV:-.venv}"
extra="$1"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" PIP_DISABLE_PIP_VERSION_CHECK=1

if [ ! -x "$venv/bin/python" ]; then
    maker="${PYTHON:-$(command -v python3.11 || command -v python3 || true)}"
    if ! "${maker:-false}" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
        echo "dynamo_nb needs CPython 3.11, found ${maker:-no python3}: install it, or name it with PYTHON=/path/to/python3.11." >&2
        exit 1
    fi
    if ! command -v g++ >/dev/null && ! command -v c++ >/dev/null && [ -z "${CXX:-}" ]; then
        echo "dynamo_nb needs a C and C++ compiler to build: install one, for instance with 'apt-get install g++'." >&2
        exit 1
    fi
    echo "== making $venv"
    "$maker" -m venv "$venv"
fi
python="$venv/bin/python"

# Installed once, and again when something that is compiled or declared has changed.
stamp="$venv/.installed-$extra"
if [ ! -e "$stamp" ] || [ -n "$(find pyproject.toml setup.py dynamo_nb/native/csrc -newer "$stamp" -print -quit)" ] \
    || ! compgen -G "dynamo_nb/native/_native*.so" >/dev/null; then
    echo "== installing dynamo_nb[$extra] and what it needs"
    "$python" -m pip install -q "setuptools>=77"
    "$python" -m pip install -q torch==2.13.0
    "$python" -m pip install -q --no-build-isolation -e ".[$extra]"
    touch "$stamp"
fi
