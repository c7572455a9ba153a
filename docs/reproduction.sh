#!/usr/bin/env bash
# The results of reproduction.md, in stages of at most 150 minutes on one core:
#   docs/reproduction.sh FOLDER-OF-PHOTOGRAPHS [STAGE ...]
# Without a stage, everything: two stages at a time, then times and slopes.
# After an interruption the same command goes on where it stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
images=${1:?"a folder of photographs"}
shift
runs=${RUNS:-docs/reproduction/runs} # a folder for each stage, so that two can run at a time
results=docs/reproduction

# One experiment at the sizes of the page, on one thread.
alone() {
    local stage=$1
    shift
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 kronfield reproduce "$@" \
        --size page --images "$images" --output "$runs/$stage" --quiet
}

# The minutes are those of one core of 2020 or later.
stage() {
    case $1 in
        table1 | table2) alone "$1" "$1" --side 128 ;;         # 80
        table1-256) alone "$1" table1 --side 256 ;;            # 35
        table2-256) alone "$1" table2 --side 256 ;;            # 35
        table3 | table4) alone "$1" "$1" --side 32 ;;          # 60
        rank-depth) alone "$1" "$1" ;;                         # 15
        visual) alone "$1" visual-grid; alone "$1" visual-random ;; # 50
        full) # complex encodings at the full side, 65
            for table in table1 table2; do alone "$1" $table --side 480; done
            for table in table3 table4; do alone "$1" $table --side 128; done
            ;;
        times) # 5: CPU time, which other work changes less than the time of the clock
            alone times times
            kronfield reproduce slopes --output "$runs/times" --quiet
            ;;
        released) alone "$1" released ;; # 10
        report) report ;;
        *) echo "no stage $1: see the names in $0" >&2 && return 2 ;;
    esac
}

# Add what the stages have found to the committed results, and write the page from them.
report() {
    local folder from=()
    for folder in "$runs"/*/; do
        if compgen -G "$folder*.jsonl" > /dev/null; then from+=(--from "$folder"); fi
    done
    kronfield reproduce report "${from[@]}" --output "$results" --page docs/reproduction.md --quiet
}

if (($#)); then
    for one in "$@"; do stage "$one"; done
else
    (for one in table1 table3 visual table1-256 rank-depth; do stage $one; done) &
    (for one in table2 table4 full table2-256 released; do stage $one; done)
    wait $!
    stage times
    report
fi
