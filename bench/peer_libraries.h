// SPDX-License-Identifier: Apache-2.0
//
// A model on Atoll and on TensorFlow Lite in one process. Each is a shared library that is opened
// when the program runs, keeps its symbols to itself and stays open.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "compat/tensorflowlite_c/c_api.h"

namespace atollrt {

struct AtollFunctions;
struct TfliteFunctions;

// A model on one side, ready to run.
class Side {
 public:
  Side() = default;
  virtual ~Side() = default;
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  virtual Status Invoke() = 0;
  // Where the data lie while this lives.
  const std::vector<std::span<uint8_t>>& inputs() const { return inputs_; }
  const std::vector<std::span<const uint8_t>>& outputs() const { return outputs_; }

 protected:
  std::vector<std::span<uint8_t>> inputs_;
  std::vector<std::span<const uint8_t>> outputs_;
};

class TfliteSide : public Side {
 public:
  virtual TfLiteType input_type(int index) const = 0;
  // Whether XNNPACK took any of the model, and what: "XNNPACK, 65 of 66 nodes".
  bool has_xnnpack() const { return xnnpack_nodes_ > 0; }
  std::string Peer() const {
    return has_xnnpack() ? Format("XNNPACK, %d of %d nodes", xnnpack_nodes_, nodes_)
                         : "builtin kernels";
  }

 protected:
  int xnnpack_nodes_ = 0;
  int nodes_ = 0;
};

class AtollLibrary {
 public:
  // kNotFound if the library cannot be opened or lacks a function.
  static Result<AtollLibrary> Open(const std::string& path);
  const char* Version() const;
  // The level of the CPU whose kernels it uses: "avx2".
  Result<const char*> Kernels() const;
  // kUnsupported with what the library says.
  Result<std::unique_ptr<Side>> Load(const std::string& model, int threads) const;

 private:
  explicit AtollLibrary(std::shared_ptr<const AtollFunctions> functions)
      : functions_(std::move(functions)) {}
  std::shared_ptr<const AtollFunctions> functions_;
};

class TfliteLibrary {
 public:
  static Result<TfliteLibrary> Open(const std::string& path);
  const char* Version() const;
  // With XNNPACK's delegate, if the library exports that and it takes anything of the model.
  // kCorruptModel, kUnsupported with what the library says.
  Result<std::unique_ptr<TfliteSide>> Load(const std::string& model, int threads) const;

 private:
  explicit TfliteLibrary(std::shared_ptr<const TfliteFunctions> functions)
      : functions_(std::move(functions)) {}
  std::shared_ptr<const TfliteFunctions> functions_;
};

}  // namespace atollrt
