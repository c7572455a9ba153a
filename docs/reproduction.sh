#!/usr/bin/env bash
# The results of reproduction.md: docs/reproduction.sh FOLDER-OF-PHOTOGRAPHS. About an hour and a half on 2 cores; after a kill it goes on.
set -euo pipefail
images=${1:?"a folder of photographs"}
run() { kronfield reproduce "$@" --output docs/reproduction --quiet; }

# Descent, a thread each, two at a time.
alone() { OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 run "$@"; }
grid() {
    alone table1 --size paper --images "$images" --side 480 --methods complex
    alone table3 --size paper --methods complex
    alone table4 --size paper --methods complex
    alone table1 --size paper --images "$images" --side 256 --count 1 --methods complex,closed,ours
    alone table1 --size paper --images "$images" --side 256 --count 1 --epochs 1000 --methods complex,simple:RFF,simple:Gau,factored:Gau
}
grid &
alone table2 --size paper --images "$images" --side 480 --methods complex
alone table2 --size paper --images "$images" --side 256 --count 1 --methods complex,ours
alone table2 --size paper --images "$images" --side 256 --count 1 --epochs 1000 --methods simple:RFF,simple:Gau
wait $!

# What takes seconds, and the quick size, with nothing else on the machine.
run table1 --size paper --images "$images" --side 480 --methods closed,ours
run table2 --size paper --images "$images" --side 480 --methods ours
run table3 --size paper --methods closed,ours
run table4 --size paper --methods ours
run all --size quick --images "$images" --page docs/reproduction.md
