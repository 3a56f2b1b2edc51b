// SPDX-License-Identifier: Apache-2.0
#include "driver/open_emulator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "driver/atoll1/atoll1_chip.h"
#include "driver/device/activity.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/emulator/stepped_machine.h"
#include "driver/profiles/device_profile.h"
#include "runtime/base/host_cpus.h"

namespace atollrt {
namespace {

constexpr std::string_view kEmulator = "emu";
constexpr std::string_view kEmulatorPrefix = "emu:";
// For a request to the emulator. How long that takes is up to the host: seconds for a large picture
// on a slow one, minutes if the emulator steps.
constexpr std::chrono::minutes kDirectTimeout{10};
constexpr std::chrono::hours kSteppedTimeout{24};
constexpr int kDefaultThreadsMax = 4;
// Of a device that stands in for a lost one.
constexpr uint64_t kStandInBytesMax = uint64_t{512} << 20;

std::string EmulatorDescription(const DeviceProfile& profile, Face face) {
  return "emulated Atoll-1, " + profile.summary +
         (face == Face::kStepped ? ", cycle by cycle: 30 to 200 times slower" : "");
}

Result<EmulatorSetup> SetUp(DeviceProfile profile, Face face, int threads,
                            uint32_t cpu_features = ~0u) {
  EmulatorSetup setup;
  DeviceOrigin& known = setup.known;
  known.description = EmulatorDescription(profile, face);
  known.emulated = true;
  known.request_timeout_min = face == Face::kStepped ? kSteppedTimeout : kDirectTimeout;
  known.host_seconds = profile.host_seconds;
  CoreOptions& core = setup.core;
  core.profile = std::move(profile);
  core.face = face;
  ATOLL_ASSIGN_OR_RETURN(core.features, DetectCpuFeatures());
  core.features &= cpu_features;
  core.threads = threads > 0 ? threads : std::min(GetHostCpus().cores, kDefaultThreadsMax);
  return setup;
}

}  // namespace

Result<std::unique_ptr<Chip>> OpenEmulatedOnUsb(const EmulatorSetup& setup) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                         EmulatedTransport::Create(setup.core));
  return Atoll1Chip::Open(std::move(transport), setup.known);
}

Result<EmulatorSetup> SetUpEmulator(const DeviceName& name, const OpenOptions& options,
                                    std::string note) {
  if (name.stepped && !HasSteppedMachine()) {
    return Unsupported(
        "this program was built without the emulator that steps (libatoll-core); libatoll has it");
  }
  ATOLL_ASSIGN_OR_RETURN(DeviceProfile profile, FindDeviceProfile(name.which));
  ATOLL_ASSIGN_OR_RETURN(EmulatorSetup setup,
                         SetUp(std::move(profile), name.stepped ? Face::kStepped : Face::kDirect,
                               options.threads, options.cpu_features));
  setup.known.name = name.which.empty() ? std::string(kEmulator)
                                        : std::string(kEmulatorPrefix) + setup.core.profile.name;
  if (name.stepped) setup.known.name += kSteppedSuffix;
  setup.known.note = std::move(note);
  return setup;
}

Result<std::unique_ptr<Device>> OpenEmulator(const EmulatorSetup& setup) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Chip> chip, setup.core.profile.on_pcie
                                                         ? OpenEmulatedOnPcie(setup)
                                                         : OpenEmulatedOnUsb(setup));
  return std::make_unique<Device>(std::move(chip),
                                  ChipKeeper::Options{.activity_directory = ActivityDirectory()});
}

Result<std::unique_ptr<Chip>> OpenStandIn(const DeviceInfo& info, int threads) {
  // The device said how large it is; it does not say how much of this host it may take.
  const uint64_t bytes = info.memory_bytes + info.program_memory_bytes;
  if (bytes > kStandInBytesMax) {
    return ResourceExhausted(
        "a stand-in for device %s would take %llu MiB, more than %llu: it has %llu bytes of memory "
        "and %llu of program memory",
        info.name.c_str(), static_cast<unsigned long long>(bytes >> 20),
        static_cast<unsigned long long>(kStandInBytesMax >> 20),
        static_cast<unsigned long long>(info.memory_bytes),
        static_cast<unsigned long long>(info.program_memory_bytes));
  }
  DeviceProfile profile;
  static_cast<DeviceFigures&>(profile) = info;
  profile.summary = "a stand-in";
  profile.host_seconds = info.host_seconds;
  ATOLL_ASSIGN_OR_RETURN(EmulatorSetup setup, SetUp(std::move(profile), Face::kDirect, threads));
  setup.known.name = std::string(kEmulator);
  return OpenEmulatedOnUsb(setup);
}

std::vector<DeviceListing> ListEmulators(bool has_default) {
  std::vector<DeviceListing> devices;
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const bool is_first = &profile == DeviceProfiles().data();
    devices.push_back(
        {.name = is_first ? std::string(kEmulator) : std::string(kEmulatorPrefix) + profile.name,
         .description = EmulatorDescription(profile, Face::kDirect),
         .available = true,
         .is_default = is_first && has_default});
  }
  if (HasSteppedMachine()) {
    devices.push_back({.name = std::string(kEmulator) += kSteppedSuffix,
                       .description = EmulatorDescription(DeviceProfiles().front(), Face::kStepped),
                       .available = true});
  }
  return devices;
}

}  // namespace atollrt
