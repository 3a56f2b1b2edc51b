// SPDX-License-Identifier: Apache-2.0
//
// Which memory of a mapped model is given back, and that nothing else is.
#include "runtime/model.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <span>
#include <vector>

#include "runtime/interpreter.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

// 64 KiB of weights in front of as many.
std::vector<uint8_t> TwoLargeConvolutions() {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 2, 2, 256}), {.channels = 256});
  m.Output(m.Conv2D(x, {.channels = 256}));
  return m.Build();
}

class MappedModel : public testing::Test {
 protected:
  void SetUp() override {
    const int file = mkstemp(path_);
    ASSERT_GE(file, 0);
    close(file);
    const std::vector<uint8_t> bytes = TwoLargeConvolutions();
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    auto model = Model::FromFile(path_);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
    Touch(*model_);
    if (!InMemory(model_->bytes().data())) {
      GTEST_SKIP() << "ATOLL-SKIPPED: nobody says which pages of a process are in memory";
    }
  }
  void TearDown() override { unlink(path_); }

  static int64_t Touch(const Model& model) {
    return std::accumulate(model.bytes().begin(), model.bytes().end(), int64_t{0});
  }
  // Whether this process has the page of `byte` in memory (bit 63 of its entry). Reads it nowhere.
  static bool InMemory(const uint8_t* byte) {
    const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    uint64_t entry = 0;
    const auto page = reinterpret_cast<uintptr_t>(byte) / PageSize();
    const ssize_t got =
        pread(file, &entry, sizeof(entry), static_cast<off_t>(page * sizeof(entry)));
    close(file);
    return got == sizeof(entry) && (entry >> 63) != 0;
  }
  static size_t PageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  // Of both convolutions, in the order of the file.
  static std::vector<std::span<const uint8_t>> WeightsOf(const Model& model) {
    std::vector<std::span<const uint8_t>> weights;
    for (const Tensor& tensor : model.graph().tensors) {
      if (tensor.data.size() == 256 * 256) weights.push_back(tensor.data);
    }
    std::sort(weights.begin(), weights.end(),
              [](const auto& a, const auto& b) { return a.data() < b.data(); });
    return weights;
  }

  std::shared_ptr<const Model> model_;

 private:
  char path_[32] = "/tmp/atoll_model_test_XXXXXX";
};

TEST_F(MappedModel, GivesBackTheWholePagesOfWhatIsNamed) {
  const auto weights = WeightsOf(*model_);
  ASSERT_EQ(weights.size(), 2u);
  const int64_t before = Touch(*model_);
  model_->DropPages(weights[1]);
  EXPECT_FALSE(InMemory(weights[1].data() + PageSize()));
  EXPECT_FALSE(InMemory(weights[1].data() + weights[1].size() / 2));
  EXPECT_TRUE(InMemory(weights[0].data() + weights[0].size() / 2)) << "of the other convolution";
  EXPECT_TRUE(InMemory(model_->bytes().data()));
  EXPECT_EQ(Touch(*model_), before) << "read again from the file";
  EXPECT_TRUE(InMemory(weights[1].data() + PageSize()));

  model_->DropPages(model_->bytes());
  EXPECT_FALSE(InMemory(model_->bytes().data()));
  EXPECT_FALSE(InMemory(&model_->bytes().back()));
  EXPECT_EQ(Touch(*model_), before);
}

TEST_F(MappedModel, GivesBackWhatIsLent) {
  const auto lent = Model::WithGraph(model_, model_->graph());
  ASSERT_TRUE(lent.ok());
  (*lent)->DropPages(WeightsOf(*model_)[0]);
  EXPECT_FALSE(InMemory(WeightsOf(*model_)[0].data() + PageSize()));
}

TEST_F(MappedModel, KeepsWhatIsNotInTheFile) {
  std::vector<uint8_t> elsewhere(16 * PageSize(), 7);
  model_->DropPages(elsewhere);
  EXPECT_EQ(elsewhere, std::vector<uint8_t>(16 * PageSize(), 7));
  // A part of the file and what is behind it.
  model_->DropPages({model_->bytes().data(), model_->bytes().size() + 1});
  EXPECT_TRUE(InMemory(model_->bytes().data()));
  model_->DropPages({});
  EXPECT_TRUE(InMemory(model_->bytes().data()));
}

TEST_F(MappedModel, KeepsNoWeightsBesideThoseThatKernelsPacked) {
  const auto interpreter = Interpreter::Create(model_, {.threads = 1});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  for (const auto weights : WeightsOf(*model_)) EXPECT_FALSE(InMemory(weights.data() + PageSize()));
}

TEST(CopiedModel, KeepsItsBytes) {
  const std::vector<uint8_t> bytes = TwoLargeConvolutions();
  const auto model = Model::FromBuffer(bytes);
  ASSERT_TRUE(model.ok()) << model.status().message();
  (*model)->DropPages((*model)->bytes());
  EXPECT_TRUE(
      std::equal(bytes.begin(), bytes.end(), (*model)->bytes().begin(), (*model)->bytes().end()));
  // Pages of memory that were given back would read as zeros.
  const auto interpreter = Interpreter::Create(*model, {.threads = 1});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  EXPECT_TRUE(
      std::equal(bytes.begin(), bytes.end(), (*model)->bytes().begin(), (*model)->bytes().end()));
}

}  // namespace
}  // namespace atollrt
