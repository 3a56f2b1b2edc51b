// SPDX-License-Identifier: Apache-2.0
//
// Random models of all operators of quantized numbers: whoever computes a node, and however it is
// divided, the bytes are the same. The CPU with one thread decides what is right; other thread
// counts, each instruction set and many devices are compared with it, in every tensor that exists
// on both sides and over several invocations. Devices differ in their arrays, in memory from all
// that a model needs down to a few KiB, so that bands of rows, streamed parameters, channels in
// parts and splits occur, and in nodes that they are not given, which makes any other partitioning.
//
// Graph number i comes from seed + i, so ATOLL_TEST_SEED=<seed of a failure> begins with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "delegate/lowering.h"
#include "runtime/interpreter.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/ops/apart_ops.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/plan/partition_report.h"
#include "tests/support/emulated_device.h"
#include "tests/support/partial_delegate.h"
#include "tests/support/random_graph.h"
#include "tests/support/recording.h"
#include "tests/support/rng.h"
#include "tests/support/work.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kSeed = 1;
constexpr int kGraphs = 1200;

// ---- Where a model runs -------------------------------------------------------------------------

// Caps the instruction set of everything that is prepared while it lives.
class CappedCpu {
 public:
  explicit CappedCpu(const char* level) {
    if (const char* before = std::getenv("ATOLL_CPU"); before != nullptr) before_ = before;
    setenv("ATOLL_CPU", level, 1);
  }
  ~CappedCpu() {
    if (before_) {
      setenv("ATOLL_CPU", before_->c_str(), 1);
    } else {
      unsetenv("ATOLL_CPU");
    }
  }
  bool exists() const { return DetectCpuFeatures().ok(); }

 private:
  std::optional<std::string> before_;
};

// Mostly random bytes; sometimes the same extreme everywhere, or only a few values.
void FillInput(Rng* rng, std::span<uint8_t> bytes) {
  rng->Fill(bytes);
  if (!rng->OneIn(6)) return;
  const uint8_t mask = rng->Pick<uint8_t>({0x00, 0x81, 0x03});
  const uint8_t base = rng->Pick<uint8_t>({0x00, 0x7f, 0x80, 0xff});
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((byte & mask) ^ base);
}

// ---- One model everywhere -----------------------------------------------------------------------

// What happened over the whole test.
struct Statistics {
  int models = 0;
  int64_t runs = 0;
  int64_t tensors = 0;  // compared
  std::map<OpType, int> nodes, nodes_on_device;
  std::set<std::pair<OpType, DataType>> types;  // that an operator read or wrote
  int partitions = 0, with_several_partitions = 0;
  int compiled = 0;  // runs of partitions that came with the model
  int banded = 0, streamed = 0, in_parts = 0, refused_for_memory = 0, refused_for_program = 0;
};

class RandomGraphs : public testing::Test {
 protected:
  RandomGraphs() {
    for (const EmulatedDevice& shape :
         {EmulatedDevice{}, EmulatedDevice{.rows = 32, .columns = 32, .threads = 2},
          EmulatedDevice{.rows = 128, .columns = 128}, EmulatedDevice{.memory_bytes = 1 << 20}}) {
      large_devices_.push_back({shape.Describe(), MakeDelegate(shape)});
    }
  }

  void Check(uint64_t seed);

  Statistics statistics_;

 private:
  struct NamedDelegate {
    std::string name;
    std::unique_ptr<PartialDelegate> delegate;
  };

  std::unique_ptr<PartialDelegate> MakeDelegate(const EmulatedDevice& shape) {
    return std::make_unique<PartialDelegate>(
        shape.Open(), [this](int32_t node) { return withheld_.count(node) != 0; });
  }

  EmulatedDevice SmallDevice(Rng* rng) const;
  Result<Recording> RecordAll(Interpreter* interpreter) const;
  void CompareWith(const std::string& name, const InterpreterOptions& options);
  void CompareCompiled(const EmulatedDevice& shape);
  void CompareCompiledForCpu();
  // The file of a compiled model.
  void CompareFile(const Bytes& file, std::initializer_list<Delegate*> delegates);
  void CountNodes();
  void LookAtPartitions(const Interpreter& interpreter);
  std::string Listing(const Interpreter& interpreter) const;

  std::vector<NamedDelegate> large_devices_;
  std::set<int32_t> withheld_;  // nodes that no device gets

  // The model that is looked at.
  uint64_t seed_ = 0;
  Bytes file_;
  std::shared_ptr<const Model> model_;
  Recording want_;
  int64_t wish_ = 0;  // most on-chip memory that a partition uses if there is plenty
};

bool HasState(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.type == OpType::kASSIGN_VARIABLE || node.type == OpType::kSVDF ||
           node.type == OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM;
  });
}

EmulatedDevice RandomGraphs::SmallDevice(Rng* rng) const {
  EmulatedDevice shape;
  shape.rows = rng->Pick<uint32_t>({1, 3, 8, 16, 64});
  shape.columns = rng->Pick<uint32_t>({1, 5, 8, 16, 64});
  // Less than what the model would like, if that is more than a few KiB.
  constexpr int64_t kLeast = 9 << 10;
  shape.memory_bytes = static_cast<uint64_t>(std::max(kLeast, wish_ * rng->Int(25, 105) / 100));
  shape.program_bytes = rng->Pick<uint64_t>({1 << 20, 1 << 20, 16 << 10, 2 << 10});
  shape.threads = rng->Int32(1, 3);
  // Cell by cell takes time.
  double work = 0;
  for (const Node& node : model_->graph().nodes) work += WorkOf(model_->graph(), node);
  constexpr double kSteppedWorkMax = 100'000;
  if (work < kSteppedWorkMax && rng->OneIn(3)) shape.face = Face::kStepped;
  return shape;
}

void RandomGraphs::Check(uint64_t seed) {
  SCOPED_TRACE("ATOLL_TEST_SEED=" + std::to_string(seed) + " begins with this graph");
  Rng rng(seed);
  Choices choices(rng.Next());
  RandomGraphOptions options;
  options.likes = [](OpType type) { return FindDeviceOp(type) != nullptr; };
  seed_ = seed;
  file_ = RandomModel(&choices, options);
  auto model = Model::FromBuffer(file_);
  ASSERT_TRUE(model.ok()) << model.status().message();
  model_ = *std::move(model);
  withheld_.clear();
  ++statistics_.models;
  CountNodes();

  const auto interpreter = Interpreter::Create(model_, {.threads = 1});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  Result<Recording> want = RecordAll(interpreter->get());
  ASSERT_TRUE(want.ok()) << want.status().message() << Listing(**interpreter);
  want_ = *std::move(want);

  for (const int threads : {2, 3}) {
    CompareWith(Format("CPU with %d threads", threads), {.threads = threads});
  }
  for (const CpuLevel& level : CpuLevels()) {
    const CappedCpu cpu(level.name);
    if (cpu.exists()) CompareWith(Format("CPU with ATOLL_CPU=%s", level.name), {.threads = 1});
  }
  CompareCompiledForCpu();
  wish_ = 0;
  for (const NamedDelegate& device : large_devices_) {
    CompareWith(device.name, {.threads = 2, .delegate = device.delegate.get()});
  }
  for (int i = 0; i < 2; ++i) {
    const EmulatedDevice shape = SmallDevice(&rng);
    const std::unique_ptr<PartialDelegate> small = MakeDelegate(shape);
    CompareWith(shape.Describe(), {.threads = 1, .delegate = small.get()});
    if (i == 0) CompareCompiled(shape);
    // Again, and on a large device, with some nodes on the CPU.
    const int64_t nodes = static_cast<int64_t>(model_->graph().nodes.size());
    if (nodes == 0) continue;  // it was all constants
    for (int64_t count = rng.Int(1, (nodes + 2) / 3); count > 0; --count) {
      withheld_.insert(static_cast<int32_t>(rng.Int(0, nodes - 1)));
    }
    CompareWith(shape.Describe() + " without some nodes", {.threads = 1, .delegate = small.get()});
    const NamedDelegate& large = large_devices_[static_cast<size_t>(rng.Int(0, 3))];
    CompareWith(large.name + " without some nodes",
                {.threads = 1, .delegate = large.delegate.get()});
    withheld_.clear();
  }
}

Result<Recording> RandomGraphs::RecordAll(Interpreter* interpreter) const {
  Rng rng(seed_);
  return Record(interpreter, HasState(model_->graph()) ? 3 : 2,
                [&](std::span<uint8_t> bytes) { FillInput(&rng, bytes); });
}

void RandomGraphs::CompareWith(const std::string& name, const InterpreterOptions& options) {
  if (HasFailure()) return;  // the first one says most
  SCOPED_TRACE(name);
  const auto interpreter = Interpreter::Create(model_, options);
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  // What has a memory forgets everything when it is reset.
  for (int i = 0; i < (HasState(model_->graph()) ? 2 : 1); ++i) {
    (*interpreter)->ResetVariables();
    const Result<Recording> got = RecordAll(interpreter->get());
    ASSERT_TRUE(got.ok()) << got.status().message() << Listing(**interpreter);
    const std::string difference = FirstDifference(model_->graph(), *got, want_);
    ASSERT_EQ(difference, "") << Listing(**interpreter);
    for (const auto& tensors : *got) statistics_.tensors += static_cast<int64_t>(tensors.size());
  }
  if (options.delegate != nullptr) LookAtPartitions(**interpreter);
  ++statistics_.runs;
}

std::vector<Bytes> OutputsIn(const Recording& recording, const Graph& graph) {
  std::vector<Bytes> outputs;
  for (const auto& tensors : recording) {
    for (const int32_t output : graph.outputs) outputs.push_back(tensors.at(output));
  }
  return outputs;
}

// The file that a compiler for this device writes, on this device, a large one and the CPU. Its
// tensors have other numbers.
void RandomGraphs::CompareCompiled(const EmulatedDevice& shape) {
  if (HasFailure()) return;
  SCOPED_TRACE("compiled for a " + shape.Describe());
  DeviceDelegate device(shape.Open());
  const Result<Bytes> file = device.Compile(*model_);
  if (!file.ok() && file.status().code() == StatusCode::kUnsupported) return;  // nothing to compile
  ASSERT_TRUE(file.ok()) << file.status().message();
  CompareFile(*file, {&device, large_devices_[0].delegate.get(), nullptr});
}

void RandomGraphs::CompareCompiledForCpu() {
  if (HasFailure()) return;
  SCOPED_TRACE("compiled for the CPU");
  const Result<Bytes> file = CompileForCpu(*model_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  CompareFile(*file, {nullptr});
}

void RandomGraphs::CompareFile(const Bytes& file, std::initializer_list<Delegate*> delegates) {
  const auto compiled = Model::FromBuffer(file);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  for (Delegate* delegate : delegates) {
    const auto interpreter = Interpreter::Create(*compiled, {.threads = 1, .delegate = delegate});
    ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
    const Result<Recording> got = RecordAll(interpreter->get());
    ASSERT_TRUE(got.ok()) << got.status().message() << Listing(**interpreter);
    const bool is_equal =
        OutputsIn(*got, (*compiled)->graph()) == OutputsIn(want_, model_->graph());
    ASSERT_TRUE(is_equal) << Listing(**interpreter);
    statistics_.compiled += !(*interpreter)->partitions().empty();
    ++statistics_.runs;
  }
}

void RandomGraphs::CountNodes() {
  const Graph& graph = model_->graph();
  for (const Node& node : graph.nodes) {
    ++statistics_.nodes[node.type];
    for (const std::vector<int32_t>& tensors : {node.inputs, node.outputs}) {
      for (const int32_t tensor : tensors) {
        if (tensor < 0 || graph.tensors[tensor].is_constant()) continue;
        statistics_.types.insert({node.type, graph.tensors[tensor].type});
      }
    }
  }
}

void RandomGraphs::LookAtPartitions(const Interpreter& interpreter) {
  statistics_.with_several_partitions += interpreter.partitions().size() > 1;
  for (const Partition& partition : interpreter.partitions()) {
    const PartitionReport& report = *partition.report;
    wish_ = std::max(wish_, report.activation_bytes + report.resident_parameter_bytes +
                                report.streamed_parameter_bytes);
    ++statistics_.partitions;
    statistics_.banded += report.note.find("bands of rows") != std::string::npos;
    statistics_.in_parts += report.note.find("parts of its output channels") != std::string::npos;
    statistics_.streamed += report.streamed_parameter_bytes > 0;
    for (const int32_t node : partition.nodes) {
      ++statistics_.nodes_on_device[model_->graph().nodes[node].type];
    }
  }
  for (const NodePlacement& placement : interpreter.placements()) {
    const std::string& reason = placement.reason;
    EXPECT_EQ(reason.empty(), placement.partition >= 0) << reason;
    statistics_.refused_for_memory += reason.find("need on-chip memory for") != std::string::npos;
    statistics_.refused_for_program += reason.find("instructions, most of") != std::string::npos;
  }
}

// The model for people, and where its file is.
std::string RandomGraphs::Listing(const Interpreter& interpreter) const {
  const Graph& graph = interpreter.graph();
  const auto operand = [&](int32_t index) {
    if (index < 0) return std::string("-");
    const Tensor& tensor = graph.tensors[index];
    return Format("%d%s %s%s*%g%+d", index, tensor.is_constant() ? "c" : "",
                  DataTypeName(tensor.type), ShapeString(tensor.shape).c_str(),
                  static_cast<double>(tensor.scale()), -tensor.zero_point());
  };
  std::string text = "\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    text +=
        Format("%zu %s [partition %d] %s:", i, node.op_name().c_str(),
               interpreter.placements()[i].partition, interpreter.placements()[i].reason.c_str());
    for (const int32_t input : node.inputs) text += " " + operand(input);
    text += " ->";
    for (const int32_t output : node.outputs) text += " " + operand(output);
    text += "\n";
  }
  for (const Partition& partition : interpreter.partitions()) text += partition.report->note + "\n";
  const std::string path = testing::TempDir() + "random_graph_" + std::to_string(seed_) + ".tflite";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(file_.data()),
             static_cast<std::streamsize>(file_.size()));
  return text + path;
}

// ---- Tests --------------------------------------------------------------------------------------

TEST(RandomModels, FollowFromTheirChoices) {
  const auto from_seed = [](uint64_t seed) {
    Choices choices(seed);
    return RandomModel(&choices, {});
  };
  EXPECT_EQ(from_seed(3), from_seed(3));
  EXPECT_NE(from_seed(3), from_seed(4));
  const auto from_bytes = [](const Bytes& bytes) {
    Choices choices{std::span(bytes)};
    return RandomModel(&choices, {});
  };
  Bytes bytes(60);
  Rng(5).Fill(bytes);
  EXPECT_EQ(from_bytes(bytes), from_bytes(bytes));
  EXPECT_TRUE(Model::FromBuffer(from_bytes({})).ok()) << "even of no choice at all";
}

TEST_F(RandomGraphs, GiveTheSameBytesWhereverTheyRun) {
  const uint64_t seed = TestSeed(kSeed);
  const int graphs = TestCount(kGraphs);
  for (int i = 0; i < graphs && !HasFailure(); ++i) Check(seed + static_cast<uint64_t>(i));
  if (HasFailure()) return;

  const Statistics& s = statistics_;
  std::printf(
      "%d models, %lld runs, %lld tensors; %d partitions, %d times several; %d with bands, %d with "
      "streaming, %d in parts, %d from compiled models; %d nodes refused for memory, %d for "
      "program "
      "memory\n",
      s.models, static_cast<long long>(s.runs), static_cast<long long>(s.tensors), s.partitions,
      s.with_several_partitions, s.banded, s.streamed, s.in_parts, s.compiled, s.refused_for_memory,
      s.refused_for_program);
  for (const auto& [type, count] : s.nodes) {
    const auto on_device = s.nodes_on_device.find(type);
    std::printf("  %s: %d nodes, %d runs of them on a device\n", OpTypeName(type).c_str(), count,
                on_device != s.nodes_on_device.end() ? on_device->second : 0);
  }
  // What follows is true of these graphs and likely of others.
  if (graphs < kGraphs || seed != kSeed) return;

  // The graphs must exercise what this test is about, and every operator there is with each type of
  // quantized numbers that it has.
  EXPECT_GT(s.with_several_partitions, s.models / 2);
  EXPECT_GT(s.banded, s.models / 40);
  EXPECT_GT(s.streamed, s.models / 20);
  EXPECT_GT(s.in_parts, s.models / 40);
  EXPECT_GT(s.compiled, s.models);
  EXPECT_GT(s.refused_for_memory, s.models / 20);
  EXPECT_GT(s.refused_for_program, s.models / 50);
  for (const CpuOp& op : CpuOps()) {
    // Shapes are constants, so loading a model leaves no SHAPE; custom operators end in floats.
    if (op.type == OpType::kSHAPE || op.type == OpType::kCUSTOM) continue;
    const std::string name = OpTypeName(op.type);
    EXPECT_GT(s.nodes.count(op.type), 0u) << name << " has no recipe";
    TypeSet types = op.types;
    for (const CpuOp& apart : ApartOps()) {
      if (apart.type == op.type) types = types | apart.types;
    }
    for (const DataType type : {DataType::kInt8, DataType::kUInt8, DataType::kInt16}) {
      if (!types.Contains(type)) continue;
      EXPECT_GT(s.types.count({op.type, type}), 0u)
          << "no " << name << " of " << DataTypeName(type);
    }
    if (FindDeviceOp(op.type) == nullptr) continue;
    EXPECT_GT(s.nodes_on_device.count(op.type), 0u) << name << " ran on no device";
  }
}

}  // namespace
}  // namespace atollrt
