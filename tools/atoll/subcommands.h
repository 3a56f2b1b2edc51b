// SPDX-License-Identifier: Apache-2.0
//
// The subcommands, one per file. Each function adds one to `app` together with its options, its
// help and its callback, which throws CommandError when it fails.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace atollcmd {

// The whole command: what main() gets and returns.
int RunCommand(int argc, char** argv);

void AddDevicesCommand(CLI::App* app);
void AddInspectCommand(CLI::App* app);
void AddCompileCommand(CLI::App* app);
void AddDisasmCommand(CLI::App* app);
void AddAsmCommand(CLI::App* app);
void AddRunCommand(CLI::App* app);
void AddVerifyCommand(CLI::App* app);
void AddClassifyCommand(CLI::App* app);
void AddDetectCommand(CLI::App* app);
void AddSegmentCommand(CLI::App* app);
void AddPoseCommand(CLI::App* app);
void AddCameraCommand(CLI::App* app);
void AddBenchmarkCommand(CLI::App* app);
void AddProfileCommand(CLI::App* app);
void AddResidencyCommand(CLI::App* app);
// `run` executes another command line, given without "atoll".
void AddReplayCommand(CLI::App* app, std::function<void(const std::vector<std::string>&)> run);
void AddTopCommand(CLI::App* app);
void AddDoctorCommand(CLI::App* app);

}  // namespace atollcmd
