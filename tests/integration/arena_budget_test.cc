// SPDX-License-Identifier: Apache-2.0
//
// The arena of every model at hand is within 5 % of what no plan can go below.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/zoo/zoo.h"
#include "runtime/interpreter.h"
#include "runtime/tflite/tflite_writer.h"
#include "tests/support/absent.h"

namespace atollrt {
namespace {

constexpr double kMostOverTheBound = 1.05;

void ExpectWithinBudget(const std::string& name, std::shared_ptr<const Model> model) {
  const auto interpreter = Interpreter::Create(std::move(model), {.threads = 2});
  ASSERT_TRUE(interpreter.ok()) << name << ": " << interpreter.status().message();
  const int64_t bound = (*interpreter)->arena_lower_bound_bytes();
  EXPECT_GT(bound, 0) << name;
  EXPECT_GE((*interpreter)->arena_bytes(), bound) << name;
  EXPECT_LE(static_cast<double>((*interpreter)->arena_bytes()),
            kMostOverTheBound * static_cast<double>(bound))
      << name;
}

void ExpectFilesWithinBudget(const std::filesystem::path& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".tflite") continue;
    auto model = Model::FromFile(file.path().string());
    ASSERT_TRUE(model.ok()) << model.status().message();
    ExpectWithinBudget(file.path().filename().string(), *std::move(model));
  }
}

TEST(ArenaBudget, ModelsOfTheTree) {
  ExpectFilesWithinBudget(std::filesystem::path(ATOLL_SOURCE_DIR) / "models/fashion");
}

TEST(ArenaBudget, NetworksOfTheZoo) {
  for (const std::string& name : ZooNetworks()) {
    const auto network = BuildZooModel(name, {.weights = ZooOptions::Weights::kZero});
    ASSERT_TRUE(network.ok()) << network.status().message();
    const auto file = WriteTflite(network->graph);
    ASSERT_TRUE(file.ok()) << file.status().message();
    auto model = Model::FromBuffer(*file);
    ASSERT_TRUE(model.ok()) << model.status().message();
    ExpectWithinBudget(name, *std::move(model));
  }
}

TEST(ArenaBudget, SharedModels) {
  const std::filesystem::path folder = std::filesystem::path(ATOLL_SHARED_DIR) / "models";
  if (!std::filesystem::exists(folder)) {
    ReportAbsent("reference data: models in " + folder.string());
    return;
  }
  ExpectFilesWithinBudget(folder);
}

}  // namespace
}  // namespace atollrt
