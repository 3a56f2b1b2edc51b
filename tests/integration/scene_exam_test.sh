#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scene_exam_test.sh SOURCE ATOLL: the bundled detector on all 1,000 scenes of both exams, composed
# anew, is as good as models/scenes/README.md says, less 0.01.
set -euo pipefail
source_dir=$1 atoll=$2
hard=0.8973 easy=0.9240

# Debian's packages are those of Debian's interpreter.
for python in /usr/bin/python3 python3; do
  if "$python" -c 'import numpy, PIL' 2>/dev/null; then found=$python; break; fi
done
missing=
[ -n "${found:-}" ] || missing="python3-numpy or python3-pil"
[ -d /usr/share/datasets/fashion-mnist ] || missing="dataset-fashion-mnist"
if [ -n "$missing" ]; then
  [ "${ATOLL_REQUIRE_SHARED:-}" != 1 ] || { echo "$missing is not installed"; exit 1; }
  echo "ATOLL-SKIPPED: $missing is not installed"
  exit
fi
less() { awk "BEGIN { print $1 - 0.01 }"; }
exec "$found" -B "$source_dir/models/scenes/evaluate.py" --atoll "$atoll" --device cpu \
     --model "$source_dir/models/scenes/scenes_int8.tflite" \
     --at-least "hard=$(less "$hard")" --at-least "easy=$(less "$easy")"
