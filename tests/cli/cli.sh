#!/usr/bin/env bash
# End-to-end checks of the command: cli.sh CASE runs one of the functions case_CASE below in a folder of its own.
# Environment: TPW_BIN, TPW_JSON_LINES (programs), TPW_EMBED (example), TPW_POCKET,
# TPW_ODD (models, the second without MTP), TPW_CUDA (1: built with it), TPW_MACHINES (recorded by hwloc),
# TPW_RUN (launcher script), MPIEXEC.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

work=$(mktemp -d)
child=
cleanup() {
  [ -z "$child" ] || kill "$child" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
cd "$work" || exit 1

fail() {
  echo "FAILED: $1"
  for file in out err; do
    [ ! -e $file ] || sed "s/^/$file: /" $file | head -n 40
  done
  exit 1
}

# expect CODE COMMAND...: runs it with standard output and error in the files out and err.
expect() {
  local wanted=$1 code=0
  shift
  "$@" >out 2>err || code=$?
  [ "$code" -eq "$wanted" ] || fail "exit $code, not $wanted: $*"
}

ranks() {
  local count=$1
  shift
  timeout -k 5 90 "$MPIEXEC" -np "$count" --bind-to none "$TPW_BIN" --bind=none "$@"
}

# The same with nothing added, for commands that have no --bind.
ranks_plain() {
  local count=$1
  shift
  timeout -k 5 90 "$MPIEXEC" -np "$count" --bind-to none "$TPW_BIN" "$@"
}

bench_ranks() {
  local count=$1
  shift
  timeout -k 5 90 "$MPIEXEC" -np "$count" --bind-to none "$TPW_BIN" bench --bind=none "$@"
}

# has FILE TEXT [TIMES]: lines with this text; at least one, or exactly TIMES.
has() {
  local count
  count=$(grep -cF -- "$2" "$1")
  if [ $# -eq 3 ]; then
    [ "$count" -eq "$3" ] || fail "$1: \"$2\" stands there $count times, not $3"
  else
    [ "$count" -gt 0 ] || fail "$1: no \"$2\""
  fi
}

json() {
  "$TPW_JSON_LINES" "$@" || fail "json_lines $*"
}

two_prompts() {
  printf '%s\n' '{"id": "a", "text": "The old house", "max_tokens": 5}' '' '{"id": 9, "ids": [5, 6, 7], "max_tokens": 20}' >p.jsonl
}

# A job that would run for minutes; returns when it has begun to write results into `file`.
start_long() {
  local count=$1
  shift
  # not through a function: the process to be ended must be timeout, which passes it on
  timeout -k 5 90 "$MPIEXEC" -np "$count" --bind-to none "$TPW_BIN" --bind=none --max-tokens 3500 --ignore-eos \
    --json live.jsonl "$@" >out 2>err &
  child=$!
  for _ in $(seq 300); do
    [ ! -s live.jsonl ] || [ ! -s out ] || return 0
    sleep 0.1
  done
  fail "nothing came out in 30 s"
}

# pid_of RANK: from the "run" line.
pid_of() {
  head -n 1 live.jsonl | grep -o '"pid":[0-9]*' | cut -d : -f 2 | sed -n "$(($1 + 1))p"
}

finish_child() {
  local wanted=$1 code=0
  wait "$child" || code=$?
  child=
  [ "$code" -eq "$wanted" ] || fail "exit $code, not $wanted"
}

case_help_is_printed_once() {
  expect 0 ranks 2 --help
  has out "Usage: tpworker" 1
  expect 0 ranks 2 --version
  has out "compiled" 1
  has out "not built" $((TPW_CUDA == 1 ? 0 : 2))
  expect 0 ranks 2 --print-config --max-tokens 9
  has out "(flag --max-tokens)" 1
}

case_usage_errors_are_2() {
  expect 2 ranks 2 --k 9
  has err "--k: must be an integer in 0..8" 1
  expect 2 ranks 2 --model "$TPW_ODD" --k 1
  has err "no MTP weights" 1
  expect 2 bench_ranks 2 --model "$TPW_ODD" --k 0,1 --batch 1
  has err "no MTP weights" 1
  expect 2 ranks 2 plans
  has err '"plans" is neither a flag nor a command' 1
  expect 2 ranks 2 --fault conv@step=1,rank=0
  has err "step, rank and layer are needed" 1
  expect 2 ranks 2 --fault kv@step=1,rank=0,layer=0
  has err "DeltaNet layer, which has no kv state" 1
  expect 2 bench_ranks 2 --prompt x
  has err "--prompt is not a flag of tpworker bench" 1
  expect 2 ranks 2 --check off,step
  has err "--check holds 2 modes; run takes one, lists are for bench" 1
  expect 2 bench_ranks 2 --check off,
  has err "--check: must be step, end, off or a number of steps" 1
  expect 2 "$TPW_BIN" --batch 0
  printf '{"text": "a"}\n{"text": "b", "maxtokens": 3}\n' >p.jsonl
  expect 2 ranks 2 --prompts p.jsonl
  has err "p.jsonl:2: unknown key" 1
  expect 2 ranks 2 --prompt x --max-tokens 5000
  has err "--prompt 1: " 1
  has err "context" 1
  printf '{"ids": [2047]}\n{"ids": [5, 2048]}\n' >p.jsonl
  expect 2 "$TPW_BIN" --prompts p.jsonl --max-tokens 2
  has err "p.jsonl:2: token 2048"
  expect 2 ranks 3
  has err "1, 2, 4 and 8" 1
}

# The whole way, and that the number of ranks, the batch and the chunks leave no trace in tokens and state.
case_two_ranks_agree() {
  two_prompts
  expect 0 ranks 2 --prompts p.jsonl --json two.jsonl --digests
  has out "all 2 ranks agree (" 1
  has out "[The old house]" 1
  has out "model $TPW_POCKET" 1
  json two.jsonl run#1 result#2 summary#1 summary.ranks=2 summary.exit=0 summary.finished=2 result.digests? \
    summary.output_tokens=25 result.digest? result.finish=length
  expect 0 "$TPW_BIN" --prompts p.jsonl --json one.jsonl --batch 1 --rows 3 --chunk 2 --page 4 --bind none
  has out "one rank"
  [ "$(json two.jsonl @summary.digest)" = "$(json one.jsonl @summary.digest)" ] || fail "digests differ"
  [ "$(json two.jsonl @result.ids @result.digest | sort)" = "$(json one.jsonl @result.ids @result.digest | sort)" ] ||
    fail "tokens differ"
}

# K changes speed, never what comes out; the drafts are counted and shown.
case_drafts_leave_no_trace() {
  two_prompts
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 3 --batch 2 --json three.jsonl
  has out "drafts   K=3: " 1
  json three.jsonl summary.k=3 summary.drafts? summary.draft_tokens? summary.accepted_tokens? summary.output_tokens=25
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 0 --json none.jsonl
  has out "drafts" 0
  json none.jsonl summary.k=0 summary.drafts=0 "summary.drafted_at=[]"
  [ "$(json three.jsonl @summary.digest)" = "$(json none.jsonl @summary.digest)" ] || fail "digests differ"
  [ "$(json three.jsonl @result.ids | sort)" = "$(json none.jsonl @result.ids | sort)" ] || fail "tokens differ"
  # nothing given: a newcomer sees drafts
  expect 0 ranks 2 --max-tokens 4
  has out "drafts   K=2: " 1
}

case_bench_small() {
  expect 0 bench_ranks 2 --k 0,2 --batch 1,2 --max-tokens 8 --repeat 1 --json b.jsonl
  has out "2 ranks, host (" 1
  has out "digests  all cells agree (4 sequences compared)" 1
  json b.jsonl run#1 cell#4 bench#1 bench.agree=true bench.exit=0 bench.compared=4 cell.different=0 cell.runs=1 cell.digest?
  [ "$(json b.jsonl @cell.k | tr '\n' ' ')" = "0 0 2 2 " ] || fail "not the cells asked for"
  [ "$(json b.jsonl @cell.digest | sort -u | wc -l)" -eq 1 ] || fail "digests differ"
  json b.jsonl cell.check=step
  has out "costs" 0
  # checks side by side: what they cost, and that they change nothing
  expect 0 bench_ranks 2 --k 0,1 --batch 2 --check off,step,3 --max-tokens 20 --repeat 2 --json c.jsonl
  has out "checks   step costs " 1
  has out "checks   3 costs " 1
  has out " of decode (median over 2 cells; from " 2
  has out "digests  all cells agree (22 sequences compared)" 1
  json c.jsonl cell#6 cost#2 cost.cells=2 cost.median? cost.least? cost.most? bench.agree=true cell.different=0
  [ "$(json c.jsonl @cell.check | tr '\n' ' ')" = "off step 3 off step 3 " ] || fail "not the checks asked for"
  [ "$(json c.jsonl @cell.digest | sort | uniq -c | awk '{ print $1 }' | tr '\n' ' ')" = "4 2 " ] ||
    fail "not one digest, and none of those without checks"
}

case_bench_of_other_models() {
  expect 0 bench_ranks 2 --k 0,1 --batch 1,2 --prompt-tokens 3 --max-tokens 3 --repeat 1
  has out "digests  all cells agree (4 sequences compared)" 1
  # ids instead of text, one rank, no drafts, one token: nothing to compare but two repeats
  expect 0 "$TPW_BIN" bench --bind none --dummy qwen3.5-0.8b --layers 4 --vocab 500 --k 0 --batch 2 --max-tokens 1 \
    --prompt-tokens 3 --repeat 2
  has out "digests  all cells agree (2 sequences compared)" 1
  # a model without MTP is measured at K = 0 by default
  expect 0 "$TPW_BIN" bench --bind none --model "$TPW_ODD" --batch 1 --max-tokens 2 --repeat 1 --json odd.jsonl
  has out "nothing to compare" 1
  json odd.jsonl cell#1 cell.k=0 bench.agree=null
  expect 2 "$TPW_BIN" bench --bind none --context 10 --k 0 --batch 1
  has err "exceed" 1
}

case_metrics_file() {
  expect 0 ranks 2 --prompt "The sea" --max-tokens 6 --k 2 --ignore-eos --metrics-file m.prom
  has m.prom 'tpworker_generation_tokens_total{rank="0"} 6' 1
  has m.prom 'tpworker_request_success_total{rank="0",finished_reason="length"} 1' 1
  # every line is a comment or NAME{LABELS} NUMBER
  [ "$(grep -cvE '^# (HELP|TYPE) tpworker_[a-z0-9_]+ .+$|^tpworker_[a-z_]+\{rank="0"[^{}]*\} [0-9.e+-]+$' m.prom)" -eq 0 ] ||
    fail "not in the exposition format"
  [ "$(ls m.prom*)" = m.prom ] || fail "something is left beside the file"
  # it cannot be written: the run goes on, one warning, 74 at the end
  expect 74 ranks 2 --prompt "The sea" --max-tokens 6 --metrics-file nowhere/m.prom
  has err "the run goes on" 1
  has out "all 2 ranks agree" 1
}

# The example speaks for itself: two sequences of four run to their end beside a cancelled one.
case_embed_example() {
  expect 0 timeout -k 5 90 "$MPIEXEC" -np 2 --bind-to none "$TPW_EMBED" "$TPW_POCKET"
  has out ": length after 12 tokens" 3
  has out "102: cancelled after " 1
  has out "100: token " 12
  has out "steps " 1
  has out "rank 1 on host (" 1
  expect 1 timeout -k 5 90 "$MPIEXEC" -np 2 --bind-to none "$TPW_EMBED" nowhere
  has err "embed: load: ERR_MISSING: "
  expect 2 "$TPW_EMBED"
}

# A long prompt tells how far it has come.
case_long_prompt_shows_progress() {
  { printf '{"ids": ['; for i in $(seq 2999); do printf '%d,' $((i % 2000)); done; printf '5], "max_tokens": 1}\n'; } >p.jsonl
  # a row a step: slow enough for a line in any case
  timeout -k 5 90 "$MPIEXEC" -np 2 --bind-to none "$TPW_BIN" --bind=none --prompts p.jsonl --rows 1 --batch 1 >out 2>err &
  child=$!
  for _ in $(seq 300); do
    grep -q "of 3000 prompt tokens" err && break
    sleep 0.1
  done
  has err "of 3000 prompt tokens"
  kill "$child"
  wait "$child"
  child=
}

case_more_prompts_than_sequences() {
  for i in $(seq 20); do
    echo "{\"ids\": [$i, 7], \"max_tokens\": $((i % 3 + 1))}"
  done >p.jsonl
  expect 0 ranks 2 --prompts p.jsonl --batch 3 --json r.jsonl --quiet
  [ ! -s out ] || fail "text although --quiet"
  json r.jsonl result#20 summary.finished=20
  # one at a time: when it ends, only the waiting one keeps the worker busy
  expect 0 ranks 2 --prompts p.jsonl --batch 1 --json s.jsonl --quiet
  json s.jsonl result#20 summary.finished=20
  [ "$(json r.jsonl @summary.digest)" = "$(json s.jsonl @summary.digest)" ] || fail "digests differ"
}

case_json_on_standard_output() {
  expect 0 ranks 2 --prompt "The sea" --max-tokens 3 --json -
  json out run#1 result#1 summary#1 result.text?
  has err "all 2 ranks agree"
}

case_dummy_without_files() {
  expect 0 ranks 2 --dummy qwen3.5-0.8b --layers 4 --vocab 500 --max-tokens 3 --batch 2 --context 64 --json d.jsonl
  json d.jsonl result.text=null result.output_tokens=3
  expect 2 ranks 2 --dummy qwen3.5-0.8b --layers 4 --vocab 500 --prompt x
  has err "no tokenizer.json" 1
}

# compare_plan RANKS FLAGS...: the plan of every rank is the peak that run finds there, to the byte; $held is then how much.
compare_plan() {
  local count=$1
  shift
  expect 0 ranks "$count" "$@" --max-tokens 2 --json run.jsonl
  expect 0 "$TPW_BIN" plan --tp "$count" "$@" --json plan.jsonl
  held=$(json run.jsonl @summary.peak_bytes)
  [ "$(tr -cd , <<<"$held" | wc -c)" -eq $((count - 1)) ] || fail "not $count ranks: $held"
  json plan.jsonl plan#1 plan.exit=0 plan.tp="$count" "plan.device_bytes=$held"
}

case_plan_is_what_a_load_holds() {
  for count in 1 2 4; do
    compare_plan "$count" --k 2 --batch 3 --context 200
  done
  local four=$held
  compare_plan 4 --k 0 --batch 2 --page 16 --pages 30 --rows 17 --compute f32
  [ "$four" != "$held" ] || fail "the settings change nothing"
  compare_plan 1 --model "$TPW_ODD" --context 64
  # a folder as a word, through the environment, and the table
  CUDA_VISIBLE_DEVICES='' expect 0 "$TPW_BIN" plan "$TPW_ODD" --context 64 --json word.jsonl
  has out "model $TPW_ODD (" 1
  has out "not compared with any memory (no GPU" 1
  json word.jsonl "plan.device_bytes=$held" plan.fits=null
  TPWORKER_TP=2 expect 0 "$TPW_BIN" plan --json - --quiet
  json out plan.tp=2
}

# Real widths. The weights are hashed, which takes most of the time.
case_plan_of_a_large_model() {
  compare_plan 2 --dummy qwen3.5-27b --layers 4 --vocab 2048 --batch 1 --rows 16 --context 64 --k 1
}

case_plan_refuses_with_numbers() {
  expect 0 "$TPW_BIN" plan --dummy qwen3.5-27b --tp 8 --memory 24GiB --json p.jsonl
  has out "fits: " 1
  json p.jsonl plan#1 plan.fits=true plan.memory_bytes=25769803776 plan.exit=0
  # all of a launcher's ranks are one too many but for the first
  expect 69 ranks_plain 2 plan --dummy qwen3.5-27b --tp 1 --memory 24GiB --json p.jsonl
  has out "DOES NOT FIT" 1
  has err "rank 0 needs " 1
  has err " too few" 1
  json p.jsonl plan#1 plan.fits=false plan.exit=69 error#1 error.exit=69 plan.device_bytes?
  expect 0 "$TPW_BIN" plan --memory "$(json p.jsonl @plan.device_bytes | tr -d '[]')" --dummy qwen3.5-27b
  expect 2 "$TPW_BIN" plan --tp 3
  has err "use 1, 2, 4 or 8" 1
  expect 2 "$TPW_BIN" plan --tp 9
  expect 2 "$TPW_BIN" plan --tp 8 --ranks-per-gpu 9
  has err "--ranks-per-gpu" 1
  CUDA_VISIBLE_DEVICES='' TPWORKER_RANKS_PER_GPU=8 expect 0 "$TPW_BIN" plan --dummy qwen3.5-27b --tp 8 --memory 24GiB
  expect 2 "$TPW_BIN" plan "$TPW_ODD" --k 1
  has err "no MTP weights" 1
  expect 2 "$TPW_BIN" plan "$TPW_ODD" --dummy qwen3.5-4b
  has err "exclude each other" 1
  expect 2 "$TPW_BIN" plan "$TPW_ODD" --model "$TPW_ODD"
  has err "exclude each other" 1
  expect 2 "$TPW_BIN" plan "$TPW_ODD" again
  expect 2 "$TPW_BIN" plan --memory 80GB
  has err "80GiB" 1
  expect 2 "$TPW_BIN" plan --context 100000000
  expect 2 "$TPW_BIN" plan --prompt x
  has err "not a flag of tpworker plan" 1
  expect 2 "$TPW_BIN" --tp 2
  expect 66 "$TPW_BIN" plan nowhere
  has err "nowhere/config.json" 1
  mkdir bad
  printf '{}' >bad/config.json
  expect 65 "$TPW_BIN" plan bad
  "$TPW_BIN" plan >/dev/full 2>err
  [ $? -eq 74 ] || fail "not 74 on a full disk"
}

# The MPI sums are compared where there are several ranks; nothing of a GPU is, and it is said why.
case_doctor_without_gpus() {
  export TPWORKER_BACKEND=auto
  export CUDA_VISIBLE_DEVICES=
  for count in 1 2 4; do
    rm -f d.jsonl
    expect 0 command_ranks "$count" doctor --json d.jsonl
    local compared=$((count > 1 ? count * 327680 : 0))
    json d.jsonl "doctor#$count" verdict#1 verdict.command=doctor verdict.exit=0 verdict.failed=0 "verdict.ranks=$count" \
      "verdict.compared=$compared" "verdict.ok=$((count * (count > 1 ? 6 : 5)))" doctor.gpu=null doctor.gpus_visible=0 \
      doctor.no_gpu? doctor.machine? doctor.isa? doctor.cpus? doctor.memory? doctor.checks? doctor.host? doctor.hosts=1
    [ "$(json d.jsonl @doctor.rank | tr '\n' ' ')" = "$(seq -s ' ' 0 $((count - 1))) " ] || fail "not a line a rank"
    has out "gpu       skipped  no GPU: " 1
    has out "0 FAILED; $compared values compared by bits" 1
    has out "327680 sums over $count ranks, each with the bits of the tree" $((count > 1 ? 1 : 0))
  done
  [ "$TPW_CUDA" = 1 ] || json d.jsonl doctor.nccl_compiled=null "doctor.no_gpu=built without CUDA"
  [ "$TPW_CUDA" = 0 ] || json d.jsonl doctor.nccl_compiled? doctor.nccl_loaded? doctor.cuda?
  expect 69 command_ranks 2 doctor --backend cuda --json d.jsonl
  has out "gpu       FAILED   no rank sees a GPU: " 1
  has out "mpi       ok " 1
  json d.jsonl verdict.exit=69 verdict.failed=2 verdict.status=ERR_RESOURCE
  TPWORKER_BACKEND=host expect 0 command_ranks 2 doctor
  has out "gpu       skipped  not asked for" 1
  # bound as a run would be
  expect 0 ranks_plain 2 doctor --isa baseline --json - --quiet
  json out doctor#2 verdict#1 doctor.isa=baseline
  [ ! -s err ] || fail "it is not quiet"
}

# The first rank sees the machine, the second a recording of another one: both end alike, and the second is named.
case_doctor_says_what_one_rank_lacks() {
  export CUDA_VISIBLE_DEVICES=
  expect 2 timeout -k 5 60 "$MPIEXEC" --bind-to none -np 1 "$TPW_BIN" doctor --json d.jsonl : \
    -np 1 -x HWLOC_XMLFILE="$TPW_MACHINES/four-nodes-gpus.xml" "$TPW_BIN" doctor
  has out "cpus      FAILED   rank 1: the topology describes another machine" 1
  has out "cpus      ok       rank 0: " 1
  has out "mpi       ok       327680 sums" 1
  has err "tpworker: doctor: 1 of 13 checks failed; cpus on rank 1 (" 1
  json d.jsonl doctor#2 verdict#1 verdict.failed=1 verdict.exit=2 error#1 error.exit=2
}

case_doctor_refuses_what_it_does_not_have() {
  export CUDA_VISIBLE_DEVICES=
  expect 2 command_ranks 3 doctor --json d.jsonl
  has err "1, 2, 4 or 8" 1
  has out "ranks     FAILED   " 1
  has out "mpi       skipped  no communicator has so many ranks" 1
  json d.jsonl doctor#3 verdict.exit=2 verdict.failed=3 verdict.compared=0
  expect 2 "$TPW_BIN" doctor --k 2
  has err "--k is not a flag of tpworker doctor" 1
  expect 2 "$TPW_BIN" doctor again
  expect 69 env SLURM_NTASKS=2 SLURM_PROCID=0 "$TPW_BIN" doctor
  has err "srun --mpi=pmix" 1
  "$TPW_BIN" doctor >/dev/full 2>err
  [ $? -eq 74 ] || fail "not 74 on a full disk"
  expect 74 command_ranks 2 doctor --json /dev/full
  # what the CPU lacks is a missing resource, what it has is used
  local code=0
  "$TPW_BIN" doctor --isa avx512 >out 2>err || code=$?
  if [ $code -eq 0 ]; then
    has out "host      ok       instructions avx512" 1
  else
    [ $code -eq 69 ] || fail "exit $code, not 69"
    has out "host      FAILED   instruction set avx512 is not on this CPU" 1
  fi
}

# Builds that can use NCCL do not start with NVLink multicast switched on by hand; others have nothing to refuse.
case_multicast_is_refused() {
  export CUDA_VISIBLE_DEVICES=
  local wanted=$((TPW_CUDA == 1 ? 69 : 0)) value
  for value in 1 yes; do
    NCCL_NVLS_ENABLE=$value expect "$wanted" command_ranks 2 doctor
    [ "$wanted" -eq 0 ] || has err "tpworker: NCCL_NVLS_ENABLE=$value is set" 1
  done
  NCCL_NVLS_ENABLE=1 expect "$wanted" ranks 2 --max-tokens 2
  NCCL_NVLS_ENABLE=1 expect "$wanted" "$TPW_BIN" bench --bind none --k 0 --batch 1 --max-tokens 1 --repeat 1
  NCCL_NVLS_ENABLE=1 expect 0 "$TPW_BIN" plan
  NCCL_NVLS_ENABLE=1 expect 0 "$TPW_BIN" --help
  NCCL_NVLS_ENABLE=0 expect 0 command_ranks 2 doctor
  NCCL_NVLS_ENABLE='' expect 0 command_ranks 2 doctor
  # on one rank only
  expect "$wanted" timeout -k 5 60 "$MPIEXEC" --bind-to none -np 1 "$TPW_BIN" doctor : \
    -np 1 -x NCCL_NVLS_ENABLE=1 "$TPW_BIN" doctor
  [ "$wanted" -eq 0 ] || has err "tpworker: rank 1: NCCL_NVLS_ENABLE=1 is set" 1
}

# With two GPUs: every check is made, every transport's sums are compared; then seats that cannot be had.
case_doctor_on_gpus() {
  expect 0 "$TPW_BIN" doctor --json one.jsonl
  local visible
  visible=$(json one.jsonl @doctor.gpus_visible)
  if [ "$visible" -lt 2 ]; then
    echo "TPW-SKIP: $visible GPUs for 2 ranks"
    exit 0
  fi
  json one.jsonl doctor.gpu? verdict.ok=9 verdict.skipped=4 verdict.failed=0
  expect 0 ranks_plain 2 doctor --json two.jsonl
  json two.jsonl doctor#2 doctor.gpu? doctor.no_gpu=null verdict.exit=0 verdict.ok=26 verdict.skipped=0 verdict.failed=0
  # mpi, packets, copies, gather on both ranks, and what the self-test compares
  [ "$(json two.jsonl @verdict.compared)" -gt $((8 * 327680)) ] || fail "too little was compared"
  has out "327680 sums over 2 ranks, each with the bits of the tree" 4
  CUDA_VISIBLE_DEVICES=0 expect 69 ranks_plain 2 doctor --json d.jsonl
  has out "see only 1 GPU between them" 1
  has out "mpi       ok       " 1
  json d.jsonl doctor.gpu=null verdict.exit=69 verdict.failed=2
  expect 69 timeout -k 5 60 "$MPIEXEC" --bind-to none -np 1 "$TPW_BIN" doctor : \
    -np 1 -x CUDA_VISIBLE_DEVICES= "$TPW_BIN" doctor
  has out "no GPU: check CUDA_VISIBLE_DEVICES" 1
}

case_missing_model_is_66() {
  expect 66 ranks 2 --model "$work/nowhere" --json e.jsonl
  has err "$work/nowhere/config.json" 1
  json e.jsonl error.exit=66
  expect 66 ranks 2 --prompts nowhere.jsonl
  has err "nowhere.jsonl" 1
}

case_corrupted_checkpoint_is_65() {
  mkdir bad
  cp "$TPW_POCKET"/*.json "$TPW_POCKET"/*.safetensors bad/
  printf '\377' | dd of=bad/model-00002-of-00002.safetensors bs=1 seek=6 conv=notrunc 2>/dev/null
  expect 65 ranks 2 --model bad
  has err "model-00002-of-00002.safetensors" 1
}

case_closed_output_is_74() {
  local codes
  "$TPW_BIN" --help >/dev/full 2>err
  [ $? -eq 74 ] || fail "not 74 on a full disk"
  "$TPW_BIN" --bind none --ignore-eos --max-tokens 2000 2>err | head -n 1 >out
  codes=("${PIPESTATUS[@]}")
  [ "${codes[0]}" -eq 74 ] || fail "exit ${codes[0]}, not 74, with a reader that left"
  has err "standard output: cannot be written"
  "$TPW_BIN" --bind none --max-tokens 2 >&- 2>err
  [ $? -eq 74 ] || fail "not 74 with a closed standard output"
}

# A record that cannot be written does not stop the text.
case_full_disk_is_74_at_the_end() {
  expect 74 ranks 2 --max-tokens 3 --json /dev/full
  has out "all 2 ranks agree"
  has err "/dev/full: cannot be written" 1
}

case_usr1_stops_with_75() {
  start_long 2
  kill -USR1 "$(pid_of 0)" "$(pid_of 1)"
  finish_child 75
  has err "stopped by SIGUSR1" 1
  has out "[stopped]"
  json live.jsonl summary.status=ERR_STOPPED summary.exit=75 result.finish=stopped result#4
}

case_term_stops_one_process_with_75() {
  start_long 1
  kill -TERM "$(pid_of 0)"
  finish_child 75
  has err "stopped by SIGTERM" 1
}

case_a_stalled_rank_is_72_and_leaves_reports() {
  start_long 2 --timeout 2
  kill -STOP "$(pid_of 1)"
  finish_child 72
  has err "tpworker: rank 0" 1
  has err "for rank 1" 1
  cat tpworker.*.0.jsonl >report.jsonl || fail "no report"
  json report.jsonl report#1 report.status=ERR_PEER report.exit=72 report.rank=0 report.host? report.step?
  json live.jsonl error.exit=72
}

case_singleton_trap_is_69() {
  SLURM_NTASKS=2 SLURM_PROCID=0 expect 69 "$TPW_BIN" --bind none
  has err "srun --mpi=pmix" 1
  SLURM_NTASKS=2 SLURM_PROCID=1 expect 69 "$TPW_BIN" --bind none
  [ ! -s err ] || fail "the second task speaks, too"
}

case_launcher_script() {
  export TPWORKER_BIN=$TPW_BIN
  expect 0 "$TPW_RUN" -n 2 -- --prompt "The sea" --max-tokens 2 --bind none
  has err "+ mpirun -np 2 --bind-to none" 1
  has out "all 2 ranks agree" 1
  echo "localhost slots=4" >hosts
  expect 0 "$TPW_RUN" --dry-run -n 4 --hostfile hosts --max-tokens 1
  has err "--hostfile hosts" 1
  has err "tpworker --max-tokens 1" 1
  expect 66 "$TPW_RUN" --hostfile nowhere
  expect 2 "$TPW_RUN" -n 3
  expect 2 "$TPW_RUN" --k 9
  TPWORKER_BIN=/nonexistent expect 66 "$TPW_RUN"
}

command_ranks() {
  local count=$1 command=$2
  shift 2
  timeout -k 5 100 "$MPIEXEC" -np "$count" --bind-to none "$TPW_BIN" "$command" --bind=none "$@"
}

# Traces of other ranks, K, batch and chunks are the same where both go; --expect says so while it runs.
case_traces_are_equal_however_the_work_is_cut() {
  two_prompts
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 2 --trace two.jsonl
  json two.jsonl trace#1 end#1 trace.ranks=2 trace.k=2 trace.drafter=mtp trace.compute=bf16 trace.prompts=2 \
    trace.digest_version=1 digest.global? digest.ranks?
  [ "$(json two.jsonl @end.records)" -eq "$(json two.jsonl @digest.seq | wc -l)" ] || fail "not as many as it says"
  expect 0 "$TPW_BIN" --bind none --prompts p.jsonl --ignore-eos --batch 1 --chunk 2 --page 16 --trace one.jsonl
  expect 0 "$TPW_BIN" diff two.jsonl one.jsonl --json d.jsonl
  has out "equal where both go" 1
  has out "only in B" 1
  json d.jsonl diff#1 diff.exit=0 diff.unequal=0 diff.first=null diff.compared?
  # the other way round, on two ranks that are one too many
  expect 0 timeout -k 5 90 "$MPIEXEC" -np 2 --bind-to none "$TPW_BIN" diff one.jsonl two.jsonl
  has out "equal where both go" 1
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 2 --expect one.jsonl
  has out "records compared with one.jsonl, all equal" 1
  # mtp counts at equal K
  expect 0 "$TPW_BIN" --bind none --prompts p.jsonl --ignore-eos --k 2 --expect two.jsonl --trace-every 3
  # fewer of them, and their steps are multiples of 3
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 2 --trace third.jsonl --trace-every 3
  [ "$(json third.jsonl @digest.step | awk '$1 % 3' | wc -l)" -eq 0 ] || fail "other steps are traced"
}

case_traces_that_cannot_be_compared_are_2() {
  two_prompts
  expect 0 "$TPW_BIN" --bind none --prompts p.jsonl --max-tokens 3 --trace a.jsonl
  expect 0 "$TPW_BIN" --bind none --prompt x --max-tokens 3 --trace b.jsonl
  expect 2 "$TPW_BIN" diff a.jsonl b.jsonl
  has err "not comparable: the prompts differ" 1
  expect 2 "$TPW_BIN" --bind none --prompt x --max-tokens 3 --compute f32 --expect b.jsonl
  has err "not comparable: compute is bf16 in b.jsonl and f32 in this run" 1
  expect 2 "$TPW_BIN" --bind none --model "$TPW_ODD" --prompts p.jsonl --expect a.jsonl
  sed 's/"digest_version":1/"digest_version":2/' b.jsonl >c.jsonl
  expect 2 "$TPW_BIN" diff b.jsonl c.jsonl
  has err "c.jsonl:1: not comparable: schema 1 and digest_version 2" 1
  head -n 1 b.jsonl >c.jsonl
  expect 2 "$TPW_BIN" --bind none --prompt x --max-tokens 3 --expect c.jsonl
  has err "nothing was compared" 1
  expect 2 "$TPW_BIN" diff b.jsonl c.jsonl
  has err "no record of the same sequence" 1
  sed '3s/global/globe/' b.jsonl >c.jsonl
  expect 65 "$TPW_BIN" diff b.jsonl c.jsonl
  has err "c.jsonl:3: " 1
  expect 65 "$TPW_BIN" --bind none --prompt x --expect c.jsonl
  expect 66 "$TPW_BIN" diff b.jsonl nowhere.jsonl
  expect 74 "$TPW_BIN" --bind none --prompt x --max-tokens 3 --trace /dev/full
  expect 2 "$TPW_BIN" --bind none --check off --trace c.jsonl
}

# found REPORT-TEXT FLAGS...: a run with this fault ends with 71, says what it found, and every rank leaves a report with its exchanges.
found() {
  local text=$1
  shift
  rm -f tpworker.*.jsonl
  expect 71 ranks 2 --prompts p.jsonl --ignore-eos --k 0 "$@"
  has err "$text" 1
  for rank in 0 1; do
    cat tpworker.*.$rank.jsonl >report.jsonl || fail "no report of rank $rank"
    json report.jsonl report#1 report.status=ERR_DIVERGED ring.op? ring.bytes? ring.begin_ns?
    [ "$(wc -c <report.jsonl)" -le 65536 ] || fail "the report is too long"
  done
}

# State at rest: by the digest of what was written. Replicated values: by comparison. One rank's sum: only by another run.
case_faults_are_found_by_what_can_find_them() {
  two_prompts
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 0 --trace good.jsonl
  found "rank 1 (" --check 4 --fault conv@step=4,rank=1,layer=2
  has err "conv state of layer 2 in slot 1 changed at rest: sequence 0" 1
  found "recurrent state of layer 4 in slot 2 changed at rest: sequence 1" --check 4 \
    --fault recurrent@step=4,rank=0,layer=4,slot=2
  found "kv state of layer 3 in slot 1 changed at rest" --check 4 --fault kv@step=4,rank=1,layer=3
  found "hidden of layer 5 differs on rank 1: " --fault hidden@step=3,rank=1,layer=5
  # the same wrong sum reaches all ranks
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 0 --fault partial@step=3,rank=1,layer=5 --trace bad.jsonl
  found "hidden of layer 5 is not what was expected: sequence 0" --fault partial@step=3,rank=1,layer=5 --expect good.jsonl
  has out "expected" 1
  expect 71 "$TPW_BIN" diff good.jsonl bad.jsonl --json d.jsonl
  has out "first difference: hidden of layer 5, sequence 0 at position" 1
  json d.jsonl diff.exit=71
  # not looked for, not found
  expect 0 ranks 2 --prompts p.jsonl --ignore-eos --k 0 --check off --fault hidden@step=3,rank=1,layer=5
  expect 2 ranks 2 --prompts p.jsonl --k 0 --fault conv@step=2,rank=0,layer=2,slot=7
}

case_probe_finds_nothing_and_what_is_there() {
  expect 0 command_ranks 2 probe --json p.jsonl
  has out " compared, none unequal" 1
  # (6 linear * 2 + 2 attention + 8 layers * 5) * 2 ranks, 3 sequences, 3 times
  json p.jsonl run#1 probe#9 verdict#1 verdict.compared=972 verdict.unequal=0 verdict.exit=0 probe.compared=108
  [ "$(json p.jsonl @probe.position | awk '{ print $1 % 16 }' | sort -u | wc -l)" -ge 4 ] || fail "too few places in the grid"
  expect 0 "$TPW_BIN" probe --bind none --dummy qwen3.5-0.8b --layers 4 --vocab 500 --k 1 --sequences 1 --repeat 1
  has out "15 compared, none unequal" 1
  # the first row of every pass is wrong from layer 3 on: of a verified run one row, else all of them
  expect 71 command_ranks 2 probe --sequences 2 --repeat 1 --fault partial@step=3,rank=1,layer=3
  has out "layer 3, hidden, rank 1; operation gemm in layer 3, row 1" 2
  has err "first: hidden of layer 3 on rank 1, sequence 0" 1
}

case_verify_quick() {
  expect 0 command_ranks 2 verify --quick --json v.jsonl --junit v.xml
  has out ": all equal" 1
  json v.jsonl verify_cell.equal=true verdict.exit=0 verdict.cells=16 verdict.different=0 verdict.digests?
  has v.xml "<testcase " 16
  has v.xml 'tests="16" failures="0"' 1
  expect 0 "$TPW_BIN" verify --bind none --model "$TPW_ODD" --cells 3 --seed 5 --json o.jsonl
  [ "$(json o.jsonl @verify_cell.drafter | grep -c mtp)" -eq 0 ] || fail "drafts of a module that is not there"
}

[ "$(type -t "case_${1:-}")" = function ] || fail "there is no case \"${1:-}\""
"case_$1"
echo "passed: $1"
