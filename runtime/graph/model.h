// SPDX-License-Identifier: Apache-2.0
//
// Model: the bytes of a .tflite file and the graph that points into them. Immutable and shared:
// interpreters keep the model that they came from alive.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/base/buffer.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

class Model {
 public:
  // Maps the file read-only; weights are used where they lie and never copied by this class. The
  // file must not be truncated while the model lives.
  static Result<std::shared_ptr<const Model>> FromFile(const std::string& path);
  // Copies the bytes.
  static Result<std::shared_ptr<const Model>> FromBuffer(std::span<const uint8_t> bytes);

  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const Graph& graph() const { return graph_; }
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  Model() = default;
  Graph graph_;
  std::span<const uint8_t> bytes_;
  Buffer copy_;              // FromBuffer
  void* mapping_ = nullptr;  // FromFile
  size_t mapping_size_ = 0;
};

}  // namespace atollrt
