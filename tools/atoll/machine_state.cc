// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/machine_state.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

namespace fs = std::filesystem;

// Linux, Documentation/ABI/testing/sysfs-class-thermal: millidegrees.
constexpr double kPerDegree = 1e3;
// Linux, Documentation/admin-guide/pm/cpufreq.rst: kHz.
constexpr double kPerMhz = 1e3;

std::optional<double> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::optional<int64_t> number = ParseNumber<int64_t>(line);
  if (!number) return std::nullopt;
  return static_cast<double>(*number);
}

// Numbers in the file `name` of each folder of `folder` whose name begins with `prefix`.
std::vector<double> ReadEach(const fs::path& folder, std::string_view prefix, const char* name) {
  std::vector<double> numbers;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (!entries->path().filename().string().starts_with(prefix)) continue;
    if (const auto number = ReadNumber(entries->path() / name)) numbers.push_back(*number);
  }
  return numbers;
}

Json RoundedOrNull(const std::optional<double>& value) {
  return value ? Json(std::round(*value * 10) / 10) : Json();
}

}  // namespace

MachineState ReadMachineState(const std::string& root) {
  MachineState state;
  for (const double milli : ReadEach(fs::path(root) / "class/thermal", "thermal_zone", "temp")) {
    const double degrees = milli / kPerDegree;
    // Zones that are off, or no thermometers, say 0 or less, or what no silicon survives.
    if (degrees <= 0 || degrees > 200) continue;
    state.temperature_c = std::max(state.temperature_c.value_or(degrees), degrees);
  }
  const std::vector<double> clocks =
      ReadEach(fs::path(root) / "devices/system/cpu", "cpu", "cpufreq/scaling_cur_freq");
  double sum = 0;
  for (const double khz : clocks) sum += khz / kPerMhz;
  if (sum > 0) state.clock_mhz = sum / static_cast<double>(clocks.size());
  return state;
}

Json ToJson(const MachineState& state) {
  return {{"temperature_c", RoundedOrNull(state.temperature_c)},
          {"clock_mhz", RoundedOrNull(state.clock_mhz)}};
}

}  // namespace atollcmd
