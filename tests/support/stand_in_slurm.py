"""Commands with Slurm's names that run job arrays on this machine, one job after the other, for submitit to talk to."""

from __future__ import annotations

from pathlib import Path

_SBATCH = """\
for script; do :; done
range=$(sed -n 's/^#SBATCH --array=\\([0-9]*-[0-9]*\\).*/\\1/p' "$script")
grep '^#SBATCH' "$script" > HERE/asked
for number in $(seq "${range%-*}" "${range#*-}"); do echo PENDING > "HERE/state/7_$number"; done
(
    for number in $(seq "${range%-*}" "${range#*-}"); do
        [ "$(cat "HERE/state/7_$number")" = PENDING ] || continue
        echo RUNNING > "HERE/state/7_$number"
        export SLURM_JOB_ID=$((8 + number)) SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$number
        export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1
        bash "$script"
        echo COMPLETED > "HERE/state/7_$number"
    done
) > /dev/null 2>&1 < /dev/null &
echo "Submitted batch job 7"
"""
_SRUN = """\
while [ "${1#-}" != "$1" ]; do
    case "$1" in --output|--error) shift ;; esac
    shift
done
exec "$@"
"""
_SCANCEL = """\
echo "$@" >> HERE/cancelled
for state in HERE/state/*; do [ "$(cat "$state")" = PENDING ] && echo CANCELLED > "$state"; done
exit 0
"""
_SACCT = """\
echo 'JobID|State|NodeList'
for state in HERE/state/*; do echo "$(basename "$state")|$(cat "$state")|here"; done
"""


def stand_in_slurm(folder: Path) -> None:
    """Write the commands into a folder, which is to stand first on the path; `asked` and `cancelled` appear there."""
    (folder / "state").mkdir(parents=True)
    for name, text in {"sbatch": _SBATCH, "srun": _SRUN, "scancel": _SCANCEL, "sacct": _SACCT}.items():
        (folder / name).write_text("#!/usr/bin/env bash\n" + text.replace("HERE", str(folder)))
        (folder / name).chmod(0o755)
