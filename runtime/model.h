// SPDX-License-Identifier: Apache-2.0
//
// Model: the bytes of a .tflite file and the graphs that point into them. Immutable and shared:
// interpreters keep the model that they came from alive.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/graph/graph.h"
#include "runtime/tflite/tflite_loader.h"

namespace atollrt {

class Model {
 public:
  // Maps the file read-only; weights are used where they lie and never copied by this class. The
  // file must not be truncated or rewritten while the model lives. Inputs get `input_shapes`
  // instead of those in the file (tflite_loader.h).
  static Result<std::shared_ptr<const Model>> FromFile(
      const std::string& path, std::span<const InputShape> input_shapes = {});
  // Reads the file into memory: what happens to it afterwards, or meanwhile, changes nothing that
  // was checked.
  static Result<std::shared_ptr<const Model>> FromCopyOfFile(
      const std::string& path, std::span<const InputShape> input_shapes = {});
  // Copies the bytes.
  static Result<std::shared_ptr<const Model>> FromBuffer(
      std::span<const uint8_t> bytes, std::span<const InputShape> input_shapes = {});
  // Uses them where they are, if they begin at a multiple of 16, else a copy: they outlive the
  // model and all that is made of it, and stay as they are.
  static Result<std::shared_ptr<const Model>> FromBorrowed(std::span<const uint8_t> bytes);

  // The same model with other shapes of its inputs, on the bytes of `model`. As long as one of the
  // same shapes lives, all who ask get it.
  static Result<std::shared_ptr<const Model>> WithInputShapes(
      std::shared_ptr<const Model> model, std::span<const InputShape> input_shapes);

  // `model` with another first graph, on its bytes and with what else it has. The graph points into
  // `model` and is as graph.h says.
  static Result<std::shared_ptr<const Model>> WithGraph(std::shared_ptr<const Model> model,
                                                        Graph graph);

  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // The graph to run; graphs() has it as the first, and those that CALL_ONCE names.
  const Graph& graph() const { return contents_.graphs[0]; }
  const std::vector<Graph>& graphs() const { return contents_.graphs; }
  const std::vector<Variable>& variables() const { return contents_.variables; }
  const ModelExtras& extras() const { return contents_.extras; }
  std::span<const uint8_t> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }  // as it was given; empty: not from a file
  // Gives back the memory that holds `bytes` of the model, as far as they are whole pages of a
  // mapped file; what is read again comes from the system's cache. Anything else is left alone:
  // constants that were computed, models that were copied. For those who have copied what they need
  // often. Thread-safe.
  void DropPages(std::span<const uint8_t> bytes) const;

 private:
  Model() = default;
  static Result<std::shared_ptr<const Model>> Load(std::shared_ptr<Model> model,
                                                   std::span<const InputShape> input_shapes);
  // Models that were made of this one.
  struct Resized {
    std::vector<InputShape> shapes;
    std::weak_ptr<const Model> model;
  };

  LoadedModel contents_;
  std::span<const uint8_t> bytes_;
  std::string path_;
  std::shared_ptr<const Model> lender_;  // WithInputShapes, WithGraph: whose bytes these are
  Buffer copy_;                          // FromBuffer, FromCopyOfFile
  void* mapping_ = nullptr;              // FromFile
  size_t mapping_size_ = 0;
  mutable std::mutex resized_mutex_;
  mutable std::vector<Resized> resized_;
};

}  // namespace atollrt
