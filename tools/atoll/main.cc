// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/subcommand.h"

int main(int argc, char** argv) { return atollcmd::RunCommand(argc, argv); }
