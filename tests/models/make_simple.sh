#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes simple.tflite of simple.json: make_simple.sh [FLATC]
set -euo pipefail
cd "$(dirname "$0")"
"${1:-flatc}" --binary --strict-json -o . ../../models/schema/tflite.fbs simple.json
