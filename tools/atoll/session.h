// SPDX-License-Identifier: Apache-2.0
//
// A model made ready on a device: what every subcommand that looks into or runs a model starts
// with. RAII over the C interface; failures throw CommandError. One thread at a time.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"
#include "driver/device_name.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/lint.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {

struct SessionOptions {
  std::string model;  // path
  std::string device = "auto";
  int threads = 0;                        // 0: the library's choice
  int max_partition_nodes = 0;            // 0: any number
  std::vector<std::string> input_shapes;  // as ParseInputShape takes them
  std::string on_device_loss = "fallback";
  int stages = 1;
  // Paths, one for each model, "-" for none; empty: none at all. Of one model, at most one.
  std::vector<std::string> fallback_models = {};
  std::string faults = {};          // empty: none
  std::string record = {};          // a file to record in; empty: none
  std::string performance = "max";  // of a Coral
  std::string firmware = {};        // of a Coral; empty: where the library looks
  int priority = 0;                 // of the interpreter's requests
  uint32_t residency_set = 0;       // as AtollInterpreterOptions has it
  bool copy = false;                // read the file, do not map it
};

// Whether a device's name is one of these; false for what is no name.
bool IsDevice(std::string_view name, atollrt::DeviceName::Kind kind);

struct InputShape {
  std::string name;    // of the input; empty: `index` says which one
  int32_t index = -1;  // among the inputs; -1: the only one
  std::vector<int32_t> sizes;
};

// "1x320x320x3", "320x320" (height and width), with "NAME=" or the number of an input and "=" in
// front where there are several; nullopt for anything else. Sizes are from 1 to 2^31 - 1.
std::optional<InputShape> ParseInputShape(std::string_view text);

// Accepts what ParseInputShape takes.
CLI::Validator InputShapeText();

// Adds MODEL, --device, --threads and --input-shape to a subcommand.
void AddSessionOptions(Command* command, SessionOptions* options);
// --input-shape alone.
void AddInputShapeOption(Command* command, std::vector<std::string>* input_shapes);
// --device and what goes with it alone.
void AddDeviceOptions(Command* command, SessionOptions* options);
// --fallback-model alone, which AddDeviceOptions adds, too.
void AddFallbackOption(Command* command, std::vector<std::string>* fallback_models);

// The options of one of the models of a command line, from those for all. Throws CommandError
// unless each has its fallback, if any has.
SessionOptions OptionsFor(const SessionOptions& all, const std::vector<std::string>& models,
                          size_t index);

// For owners of what the C interface makes: std::unique_ptr<AtollModel, Deleter<AtollModelDelete>>.
template <auto kDelete>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kDelete(object);
  }
};

class Session {
 public:
  // Loads the model, opens the device, unless `device_of` has it already, and prepares the
  // interpreter, in this order.
  explicit Session(const SessionOptions& options, const Session* device_of = nullptr);
  // Another interpreter of the same model on the same device, for another thread. Its inputs are
  // its own.
  std::unique_ptr<Session> Twin() const;

  const AtollModel* model() const { return model_.get(); }
  // What runs: the model, or what takes the place of one that was compiled for a Coral.
  const AtollModel* running_model() const {
    return substitute_ != nullptr && !substitute_path_.empty() ? substitute_.get() : model_.get();
  }
  const std::string& running_path() const {
    return substitute_path_.empty() ? options_.model : substitute_path_;
  }
  const std::string& substitute_path() const { return substitute_path_; }  // "": the model runs
  AtollInterpreter* interpreter() const { return interpreter_.get(); }
  const AtollDelegate* delegate() const { return delegate_.get(); }
  const SessionOptions& options() const { return options_; }

  // What --device would take, "emu" or "cpu", and a description for people.
  const std::string& device_name() const { return device_name_; }
  const std::string& device_description() const { return device_description_; }
  bool on_device() const { return on_device_; }  // else on the CPU
  // Whether the device is this computer's emulation of one.
  bool emulated() const { return AtollDelegateIsEmulated(delegate_.get()) != 0; }
  // Whether a model that was compiled for a Coral runs on one.
  bool on_coral() const;
  // What the device is made of; zeros with --device cpu.
  AtollDeviceInfo device_info() const {
    return Ask(AtollDelegateGetDeviceInfo, delegate(), "the device");
  }

  // Looks for what is commonly wrong with models that are used so; adds to warnings().
  void Lint(const ModelUse& use);
  void AddWarnings(const std::vector<Finding>& warnings);
  const std::vector<Finding>& warnings() const { return warnings_; }

  // With --device auto, says on stderr which device was taken. Called once everything else on the
  // command line proved right, so that an error stays the only line on stderr.
  void AnnounceDevice() const;
  void AnnounceWarnings() const;
  // Both.
  void Announce() const {
    AnnounceDevice();
    AnnounceWarnings();
  }

  void Invoke();
  // What to do after a failure of this device, if that is not what is usually said.
  std::string AdviseAfter(AtollStatus status) const;

  std::vector<AtollTensor*> inputs() const;
  std::vector<const AtollTensor*> outputs() const;
  std::vector<AtollNodeInfo> nodes() const {
    return AskAll(AtollInterpreterGetNodeCount, AtollInterpreterGetNodeInfo, "an operator");
  }
  std::vector<AtollNodeKernel> kernels() const {  // of each operator
    return AskAll(AtollInterpreterGetNodeCount, AtollInterpreterGetNodeKernel, "an operator");
  }
  std::vector<AtollPartitionInfo> partitions() const {
    return AskAll(AtollInterpreterGetPartitionCount, AtollInterpreterGetPartitionInfo,
                  "a partition");
  }
  // "1 partition with 64 of 66 operators on the device, 2 on the CPU"
  std::string PartitionSummary() const;
  AtollInvokeInfo invoke_info() const {
    return Ask(AtollInterpreterGetInvokeInfo, interpreter(), "the invocation");
  }
  AtollMemoryInfo memory_info() const {
    return Ask(AtollInterpreterGetMemoryInfo, interpreter(), "the memory");
  }
  // Zeros on the CPU.
  AtollDeviceHealth device_health() const {
    return Ask(AtollDelegateGetDeviceHealth, delegate(), "the device");
  }
  // What is on the device for a partition, from the start of its request on.
  std::span<const AtollMemoryBlock> partition_memory(size_t partition) const;
  // Says on stderr what went wrong with the device so far, if anything did.
  void AnnounceHealth() const;
  int64_t macs() const;

  struct LoadTimes {
    double model_ms = 0;    // map and check the file
    double device_ms = 0;   // open the device
    double prepare_ms = 0;  // plan, compile, upload, allocate
  };
  const LoadTimes& load_times() const { return load_times_; }

 private:
  template <typename Object, typename Info>
  static Info Ask(AtollStatus (*get)(const Object*, Info*), const Object* object,
                  const char* what) {
    Info info = {};
    ThrowIfError(get(object, &info), Activity::kRunning, fmt::format("cannot describe {}", what));
    return info;
  }
  template <typename Info>
  std::vector<Info> AskAll(int32_t (*get_count)(const AtollInterpreter*),
                           AtollStatus (*get)(const AtollInterpreter*, int32_t, Info*),
                           const char* what) const {
    std::vector<Info> all(static_cast<size_t>(get_count(interpreter())));
    for (size_t i = 0; i < all.size(); ++i) {
      ThrowIfError(get(interpreter(), static_cast<int32_t>(i), &all[i]), Activity::kRunning,
                   fmt::format("cannot describe {}", what));
    }
    return all;
  }

  // Loads the model unless it is `shared`.
  Session(const SessionOptions& options, const Session* device_of,
          std::shared_ptr<AtollModel> shared);

  SessionOptions options_;
  std::shared_ptr<AtollModel> model_;
  std::unique_ptr<AtollModel, Deleter<AtollModelDelete>> substitute_;  // of substitute_path_
  std::string substitute_path_;
  std::shared_ptr<AtollDelegate> delegate_;
  std::unique_ptr<AtollInterpreter, Deleter<AtollInterpreterDelete>> interpreter_;
  std::string device_name_;
  bool on_device_ = false;
  std::string device_description_;
  LoadTimes load_times_;
  std::vector<Finding> warnings_;
};

// ---- Inputs ------------------------------------------------------------------------------------
//
// Seed S: every input restarts its own splitmix64 at state = S. The bytes of an integer tensor are
// those of the numbers in turn, each as 8 bytes, least significant first, the last number cut off;
// bool is the lowest bit of each byte; float32 is one number per element,
// (next() >> 40) / 2^24 * 2 - 1, so in [-1, 1). The same stream everywhere makes runs comparable
// between devices, machines and other runtimes.

void FillFromSeed(uint64_t seed, AtollTensor* tensor);

// An input that is to be filled, of an interpreter or of anything else.
struct InputSlot {
  std::string name;
  AtollType type = ATOLL_NO_TYPE;
  std::string shape;  // for sentences
  std::span<uint8_t> bytes;
};

// Fills all inputs from `seed`, apart from those that `files` names ("0=image.raw": the index of
// the input and a file of exactly its bytes).
void FillInputs(const Session& session, uint64_t seed, const std::vector<std::string>& files);
void FillInputs(const std::vector<InputSlot>& slots, uint64_t seed,
                const std::vector<std::string>& files);

}  // namespace atollcmd
