// SPDX-License-Identifier: Apache-2.0
//
// A model made ready on a device: what every subcommand that looks into or runs a model starts
// with. RAII over the C interface; failures throw CommandError. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"
#include "tools/atoll/lint.h"

namespace CLI {
class App;
}

namespace atollcmd {

struct SessionOptions {
  std::string model;  // path
  std::string device = "auto";
  int threads = 0;                        // 0: the library's choice
  int max_partition_nodes = 0;            // 0: any number
  std::vector<std::string> input_shapes;  // as ParseInputShape takes them
  std::string on_device_loss = "fallback";
  int stages = 1;
  std::string fallback_model = {};  // path; empty: none
  std::string faults = {};          // empty: none
  std::string record = {};          // a file to record in; empty: none
  std::string performance = "max";  // of a Coral
  std::string firmware = {};        // of a Coral; empty: where the library looks
  int priority = 0;                 // of the interpreter's requests
  uint32_t residency_set = 0;       // as AtollInterpreterOptions has it
  bool copy = false;                // read the file, do not map it
};

// Adds MODEL, --device, --threads and --input-shape to a subcommand.
void AddSessionOptions(CLI::App* app, SessionOptions* options);
// --input-shape alone.
void AddInputShapeOption(CLI::App* app, std::vector<std::string>* input_shapes);
// --device and what goes with it alone.
void AddDeviceOptions(CLI::App* app, SessionOptions* options);

class Session {
 public:
  // Loads the model, opens the device, unless `device_of` has it already, and prepares the
  // interpreter, in this order.
  explicit Session(const SessionOptions& options, const Session* device_of = nullptr);

  const AtollModel* model() const { return model_.get(); }
  AtollInterpreter* interpreter() const { return interpreter_.get(); }
  const AtollDelegate* delegate() const { return delegate_.get(); }
  const SessionOptions& options() const { return options_; }

  // What --device would take, "emu" or "cpu", and a description for people.
  const std::string& device_name() const { return device_name_; }
  const std::string& device_description() const { return device_description_; }
  bool on_device() const { return on_device_; }  // else on the CPU
  // Whether the device is this computer's emulation of one.
  bool emulated() const { return AtollDelegateIsEmulated(delegate_.get()) != 0; }
  // Whether the model was compiled for a Coral, and so the device is one.
  bool on_coral() const;
  // What the device is made of; zeros with --device cpu.
  AtollDeviceInfo device_info() const;

  // Looks for what is commonly wrong with models that are used so; adds to warnings().
  void Lint(const ModelUse& use);
  void AddWarnings(const std::vector<Finding>& warnings);
  const std::vector<Finding>& warnings() const { return warnings_; }

  // With --device auto, says on stderr which device was taken. Called once everything else on the
  // command line proved right, so that an error stays the only line on stderr.
  void AnnounceDevice() const;
  void AnnounceWarnings() const;
  // Both.
  void Announce() const;

  void Invoke();
  // What to do after a failure of this device, if that is not what is usually said.
  std::string AdviseAfter(AtollStatus status) const;

  std::vector<AtollTensor*> inputs() const;
  std::vector<const AtollTensor*> outputs() const;
  std::vector<AtollNodeInfo> nodes() const;
  std::vector<AtollPartitionInfo> partitions() const;
  // "1 partition with 64 of 66 operators on the device, 2 on the CPU"
  std::string PartitionSummary() const;
  AtollInvokeInfo invoke_info() const;
  AtollMemoryInfo memory_info() const;
  // Zeros on the CPU.
  AtollDeviceHealth device_health() const;
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
  template <auto kDelete>
  struct Deleter {
    template <typename T>
    void operator()(T* object) const {
      kDelete(object);
    }
  };

  SessionOptions options_;
  std::unique_ptr<AtollModel, Deleter<AtollModelDelete>> model_;
  std::shared_ptr<AtollDelegate> delegate_;
  std::unique_ptr<AtollInterpreter, Deleter<AtollInterpreterDelete>> interpreter_;
  std::string device_name_;
  bool on_device_ = false;
  std::string device_description_;
  LoadTimes load_times_;
  std::vector<Finding> warnings_;
};

}  // namespace atollcmd
