// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/subcommands.h"
namespace atollcmd {
void AddCameraCommand(CLI::App*) {}
}
