#!/usr/bin/env bash
# Writes launch files and has the tools' own parsers read them, in an environment apart (5.8 GiB the
# first time): read_back.sh COMMAND, where COMMAND is trainjob-advisor. PYTHON312 names a CPython 3.12
# or newer, which megatron-core wants.
set -euo pipefail
cd "$(dirname "$0")/../.."
advisor=$1
tools="${XDG_CACHE_HOME:-$HOME/.cache}/trainjob-advisor/launchers"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [[ ! -f $tools/.ready ]]; then
  "${PYTHON312:-python3.12}" -m venv "$tools"
  "$tools/bin/pip" install --quiet setuptools wheel -r tests/launchers/requirements.txt
  # DeepSpeed's setup looks for the torch it will run on, so it comes second and is built beside it.
  "$tools/bin/pip" install --quiet --no-build-isolation deepspeed==0.19.8
  # What Megatron-Bridge depends on needs CUDA to be built, and its configuration needs none of it.
  "$tools/bin/pip" install --quiet --no-deps megatron-bridge==0.6.2
  touch "$tools/.ready"
fi

write() { # launcher, case, flags
  local place="$folder/$1/$2"
  mkdir -p "$place"
  "$advisor" launch --launcher "$1" --gpu H100-SXM5-80GB --write "$place" "${@:3}" >/dev/null
}

for launcher in torchtitan megatron-lm megatron-bridge deepspeed accelerate; do
  write $launcher 8b --model llama-3-8b
  write $launcher 70b --model llama-3-70b --nodes 8
done
for launcher in torchtitan megatron-lm megatron-bridge; do
  write $launcher moe --model mixtral-8x7b --nodes 4
  write $launcher pipeline --model llama-3-70b --nodes 8 --layout tp=8,pp=4,vpp=2,recompute=full
done
uneven=7,8,8,8,8,8,8,8,8,8,8,8,8,8,8,7
for launcher in megatron-lm megatron-bridge; do
  write $launcher latent --model deepseek-v3 --nodes 64
  write $launcher uneven --model llama-3-405b --nodes 32 --layout tp=8,pp=16,stage_layers=$uneven
  write $launcher fsdp --model llama-3-70b --nodes 8 --layout sharding=zero3,tp=2,recompute=full
done
write accelerate tp --model llama-3-70b --nodes 8 --layout tp=4,cp=2,recompute=full
write deepspeed offload --model llama-3-8b --offload optimizer

"$tools/bin/python" tests/launchers/read_back.py "$folder" 2>"$folder/stderr" || {
  tail -n 20 "$folder/stderr" >&2
  exit 1
}
