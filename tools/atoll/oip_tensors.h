// SPDX-License-Identifier: Apache-2.0
//
// What servers of the Open Inference Protocol say of their models, checked, and a target that has
// these inputs, whatever carries them there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/runtime.h"
#include "tools/atoll/load_target.h"
#include "tools/atoll/report.h"

namespace atollcmd {

struct OipDatatype {
  const char* name;
  AtollType type;
  int bytes;
};
// "INT8"; nullptr for one that cannot be made up.
const OipDatatype* FindOipDatatype(std::string_view name);

struct OipTensor {
  std::string name;
  const OipDatatype* datatype = nullptr;
  std::vector<int64_t> shape;
  size_t bytes = 0;
};
// The inputs in the description of a model, as GET /v2/models/MODEL has it; sizes that may be any
// are 1. Throws CommandError, with `where`, for what is none, or is too large.
std::vector<OipTensor> ReadOipInputs(const Json& model, const std::string& where);

class OipTarget : public Target {
 public:
  OipTarget(std::string address, std::string model, std::vector<OipTensor> inputs,
            std::vector<std::unique_ptr<Stream>> streams);

  std::string name() const override { return address_; }
  std::string model() const override { return model_; }
  size_t stream_count() const override { return streams_.size(); }
  Stream& stream(size_t index) override { return *streams_[index]; }
  Session* session() override { return nullptr; }
  Inputs MakeInputs(const std::vector<std::string>& files) override;
  void CheckInputs(const Inputs& inputs) const override;
  Json Describe() const override;

 private:
  const std::string address_;
  const std::string model_;
  const std::vector<OipTensor> inputs_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace atollcmd
