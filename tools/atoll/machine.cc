// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/machine.h"

#include <sys/utsname.h>

#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/peak_loop.h"

namespace atollcmd {
namespace {

// x86 has a "model name", most ARM boards a "Model" at the end.
std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, board;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) return line.substr(colon + 2);
    if (line.starts_with("Model")) board = line.substr(colon + 2);
  }
  return board.empty() ? "unknown" : board;
}

}  // namespace

Json MachineJson() {
  const char* kernels = "";
  ThrowIfError(AtollCpuName(&kernels), Activity::kOpeningDevice, "cannot use the CPU");
  utsname system = {};
  uname(&system);
  return {{"cpu", CpuModel()},
          {"kernels", kernels},
          {"logical_cpus", std::thread::hardware_concurrency()},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"peak_gmacs", std::round(PeakMacsPerSecond(kernels) / 1e7) / 100}};
}

}  // namespace atollcmd
