// SPDX-License-Identifier: Apache-2.0
//
// Packed weights as bytes of a file, which may be damaged or somebody else's. That those that are
// good give the right results is tested with the convolutions.
#include "runtime/kernels/packed_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/bytes.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"
#include "runtime/kernels/quantization/kept_fits.h"
#include "tests/runtime/kernels/random_conv.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(PackedWeights, AreReadAsTheyWereWritten) {
  PackedWeightsWriter writer;
  for (uint32_t i = 0; i < 20; ++i) writer.Add(i * 0x01010101u);
  writer.Add(WeightSums{.sum = -5, .absolute = int64_t{1} << 40});
  for (const uint64_t bytes : {3, 64, 65}) {
    uint8_t* const block = writer.AddBlock(bytes);
    std::iota(block, block + bytes, static_cast<uint8_t>(bytes));
  }
  const PackedFile file(writer.Finish());
  PackedWeightsReader reader(file.bytes());
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(reader.Next(), i * 0x01010101u);
  const WeightSums sums = reader.NextSums();
  EXPECT_EQ(static_cast<uint32_t>(sums.sum), static_cast<uint32_t>(-5));
  EXPECT_GE(sums.absolute, int64_t{1} << 30);
  for (const uint64_t bytes : {3, 64, 65}) {
    const uint8_t* const block = reader.NextBlock(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % Buffer::kAlignment, 0u);
    for (uint64_t i = 0; i < bytes; ++i) EXPECT_EQ(block[i], static_cast<uint8_t>(bytes + i));
  }
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.NextBlock(1), nullptr);
  EXPECT_FALSE(reader.ok());
}

TEST(PackedWeights, EndWhereTheyEnd) {
  PackedWeightsWriter writer;
  writer.Add(7);
  writer.AddBlock(64);
  const Bytes good = writer.Finish();
  ASSERT_EQ(good.size(), 128u);
  for (size_t size = 0; size <= good.size(); ++size) {
    const PackedFile file(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size)));
    PackedWeightsReader reader(file.bytes());
    EXPECT_EQ(reader.ok(), size >= 12) << size;
    EXPECT_EQ(reader.Next(), size >= 12 ? 7u : 0u) << size;
    EXPECT_EQ(reader.NextBlock(64) != nullptr, size == 128) << size;
    EXPECT_EQ(reader.Next(), 0u);
    EXPECT_FALSE(reader.ok());
  }
}

TEST(PackedWeights, HaveAnIdentifierACountAndAnAlignment) {
  PackedWeightsWriter writer;
  writer.Add(7);
  const Bytes good = writer.Finish();
  PackedFile file(good);
  EXPECT_TRUE(PackedWeightsReader(file.bytes()).ok());
  Bytes moved(good.size() + 2 * Buffer::kAlignment);
  const size_t aligned = -reinterpret_cast<uintptr_t>(moved.data()) % Buffer::kAlignment;
  std::copy(good.begin(), good.end(), moved.begin() + static_cast<ptrdiff_t>(aligned) + 4);
  EXPECT_FALSE(PackedWeightsReader({&moved[aligned + 4], good.size()}).ok());
  StoreLittleEndian<uint32_t>(&file.bytes()[4], 0xFFFFFFFFu);
  EXPECT_FALSE(PackedWeightsReader(file.bytes()).ok());
  StoreLittleEndian<uint32_t>(&file.bytes()[4], 1);
  file.bytes()[0] ^= 1;
  EXPECT_FALSE(PackedWeightsReader(file.bytes()).ok());
}

TEST(PackedWeights, AreTheSumsOfTheirParts) {
  for (const int32_t smallest : {-128, -127}) {
    for (int32_t value = -255; value <= 255; ++value) {
      int32_t sum = 0;
      for (int32_t part = 0; part < kByteParts; ++part) {
        const int32_t byte = BytePart(value, part, smallest);
        EXPECT_TRUE(smallest <= byte && byte <= 127) << value << " has part " << byte;
        sum += byte;
      }
      EXPECT_EQ(sum, value) << "of parts from " << smallest << " on";
    }
  }
}

// One with weights that need several parts.
template <typename Params>
Params RandomParams(Rng* rng, bool is_depthwise) {
  Params p;
  p.shape = RandomGeometry(rng, 6);
  ConvShape& s = p.shape;
  s.groups = is_depthwise ? 1 : rng->Int32(1, 2);
  s.input_c = s.groups * rng->Int32(1, 40);
  s.output_c = is_depthwise ? s.input_c : s.groups * rng->Int32(1, 40);
  p.weight_type = ByteType::kUInt8;
  p.weight_zero_point = rng->Pick<int32_t>({0, 100, 128, 255});
  p.output = RandomOutputStage(rng, s.output_c, 1e6);
  return p;
}

template <typename Kernel, typename Params, typename Reference>
void SurvivesDamage(bool is_depthwise, Reference reference) {
  Rng rng(TestSeed(3));
  int used = 0, refused = 0;
  for (int i = 0; i < TestCount(400) && !testing::Test::HasFailure(); ++i) {
    Params p = RandomParams<Params>(&rng, is_depthwise);
    const ConvShape& s = p.shape;
    Bytes weights(static_cast<size_t>(s.output_c) * static_cast<size_t>(s.kernel_h) *
                  static_cast<size_t>(s.kernel_w) *
                  (is_depthwise ? 1 : static_cast<size_t>(s.input_c / s.groups)));
    rng.Fill(weights);
    p.weights = weights.data();
    GuardedBuffer input(static_cast<size_t>(s.InputBytes()));
    GuardedBuffer output(static_cast<size_t>(s.OutputBytes()));
    rng.Fill(input.bytes());
    Bytes expected(output.size());
    reference(p, input.data(), expected.data());
    for (const CpuFeatures features : AvailableCpuLevels()) {
      Bytes packed = Kernel::PackWeights(p, features);
      if (rng.OneIn(4)) packed.resize(static_cast<size_t>(rng.Int(0, packed.size())));
      // Numbers, of which there are few, much more often than weights.
      const int64_t numbers = std::min<int64_t>(static_cast<int64_t>(packed.size()) / 4, 40);
      for (int64_t k = rng.Int(0, 3); k > 0 && numbers > 0; --k) {
        StoreLittleEndian(&packed[4 * static_cast<size_t>(rng.Int(0, numbers - 1))],
                          rng.Pick<uint32_t>({0, 1, 2, 255, 0x7FFFFFFF, 0xFFFFFFFF}));
      }
      const PackedFile file(packed);
      p.packed_weights = file.bytes();
      const Result<Kernel> conv = Kernel::Prepare(p, features);
      ASSERT_TRUE(conv.ok()) << conv.status().message();
      GuardedBuffer scratch(conv->ScratchBytes(1));
      conv->Run(input.data(), output.data(), scratch.data(), nullptr);
      EXPECT_TRUE(output.Intact() && scratch.Intact());
      ++(conv->uses_packed_weights() ? used : refused);
      if (conv->uses_packed_weights()) continue;
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), output.data()));
    }
  }
  EXPECT_GT(used, 0);
  EXPECT_GT(refused, 0);
}

TEST(PackedWeights, ThatAreDamagedDoNoHarmToConvolutions) {
  SurvivesDamage<Conv2D, Conv2DParams>(false, ReferenceConv2D);
}

TEST(PackedWeights, ThatAreDamagedDoNoHarmToDepthwiseConvolutions) {
  SurvivesDamage<DepthwiseConv2D, DepthwiseConv2DParams>(true, ReferenceDepthwiseConv2D);
}

// Those of a kernel with another layout, of another filter or of another zero point.
TEST(PackedWeights, OfOthersAreNotUsed) {
  Rng rng(4);
  Conv2DParams p;
  p.shape = {.input_c = 24, .output_c = 40};
  p.output = RandomOutputStage(&rng, 40, 1e6);
  Bytes weights(24 * 40);
  rng.Fill(weights);
  p.weights = weights.data();
  for (const CpuFeatures features : AvailableCpuLevels()) {
    const PackedFile file(Conv2D::PackWeights(p, features));
    p.packed_weights = file.bytes();
    EXPECT_TRUE(Conv2D::Prepare(p, features)->uses_packed_weights());
    const GemmKernel& kernel = ChooseGemm(features);
    for (const CpuFeatures others : AvailableCpuLevels()) {
      const GemmKernel& other = ChooseGemm(others);
      const bool same = other.k_group == kernel.k_group &&
                        other.panel_columns == kernel.panel_columns &&
                        other.lhs_element_bytes == kernel.lhs_element_bytes &&
                        other.narrow_weights == kernel.narrow_weights;
      EXPECT_EQ(Conv2D::Prepare(p, others)->uses_packed_weights(), same);
    }
    // The same layout, with weights of -128 where the kernel takes none, or the other way round.
    PackedFile other_range(Conv2D::PackWeights(p, features));
    StoreLittleEndian(
        &other_range.bytes()[8],
        static_cast<uint32_t>(kernel.narrow_weights ? PackedWeightsKind::kConv2D
                                                    : PackedWeightsKind::kNarrowConv2D));
    Conv2DParams changed = p;
    changed.packed_weights = other_range.bytes();
    EXPECT_FALSE(Conv2D::Prepare(changed, features)->uses_packed_weights());
    changed = p;
    changed.weight_zero_point = 1;
    EXPECT_FALSE(Conv2D::Prepare(changed, features)->uses_packed_weights());
    changed = p;
    changed.weight_type = ByteType::kUInt8;
    EXPECT_FALSE(Conv2D::Prepare(changed, features)->uses_packed_weights());
    changed = p;
    changed.shape.groups = 2;
    EXPECT_FALSE(Conv2D::Prepare(changed, features)->uses_packed_weights());
    changed = p;
    changed.shape.input_c = 12;
    changed.shape.input_w = changed.shape.kernel_w = 2;
    EXPECT_EQ(Conv2D::Prepare(changed, features)->uses_packed_weights(), true)
        << "the same to a matrix product";
  }
}

// Float forms are kept with what they were found for: other output stages find their own.
TEST(PackedWeights, KeepFloatFormsOfTheirOutputStageAlone) {
  Rng rng(TestSeed(5));
  bool uses_them = false;
  for (int i = 0; i < TestCount(40); ++i) {
    Conv2DParams p;
    p.shape = {.input_h = 5, .input_w = 9, .output_h = 5, .output_w = 9};
    p.shape.input_c = rng.Int32(1, 40);
    p.shape.output_c = rng.Int32(1, 40);
    p.output = RandomOutputStage(&rng, p.shape.output_c, 1e6);
    p.output.mode = RequantizeMode::kFixedPoint;
    Bytes weights(static_cast<size_t>(p.shape.input_c) * static_cast<size_t>(p.shape.output_c));
    rng.Fill(weights);
    p.weights = weights.data();
    Bytes input(static_cast<size_t>(p.shape.InputBytes()));
    rng.Fill(input);
    const auto run = [&](const Conv2DParams& params, CpuFeatures features) {
      const Result<Conv2D> conv = Conv2D::Prepare(params, features);
      EXPECT_TRUE(conv.ok() && conv->uses_packed_weights());
      Bytes output(static_cast<size_t>(params.shape.OutputBytes()));
      Bytes scratch(conv->ScratchBytes(1));
      conv->Run(input.data(), output.data(), scratch.data(), nullptr);
      return output;
    };
    const auto expect_right = [&](const Conv2DParams& params, CpuFeatures features) {
      Bytes expected(static_cast<size_t>(params.shape.OutputBytes()));
      ReferenceConv2D(params, input.data(), expected.data());
      EXPECT_EQ(run(params, features), expected) << CpuFeaturesName(features);
    };
    Conv2DParams other = p;
    other.output = RandomOutputStage(&rng, p.shape.output_c, 1e6);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      PackedFile file(Conv2D::PackWeights(p, features));
      p.packed_weights = other.packed_weights = file.bytes();
      expect_right(p, features);
      expect_right(other, features);
      // As files were before they kept any.
      Conv2DParams without = p;
      without.output.mode = RequantizeMode::kDouble;
      const PackedFile old(Conv2D::PackWeights(without, features));
      without.output.mode = RequantizeMode::kFixedPoint;
      without.packed_weights = old.bytes();
      expect_right(without, features);
      if (ChooseGemm(features).fit == nullptr) {
        EXPECT_EQ(file.bytes().size(), old.bytes().size());
        continue;
      }
      // What a file says is used, be it wrong.
      const size_t numbers = LoadLittleEndian<uint32_t>(&file.bytes()[4]);
      const size_t first = AlignUp(8 + 4 * numbers, Buffer::kAlignment);
      const Bytes right = run(p, features);
      for (int32_t c = 0; c < p.shape.output_c; ++c) {
        rng.Fill(file.bytes().subspan(first + static_cast<size_t>(c) * kKeptFitBytes + 12, 12));
      }
      uses_them = uses_them || run(p, features) != right;
    }
  }
  const bool has_any = std::ranges::any_of(AvailableCpuLevels(), [](CpuFeatures features) {
    return ChooseGemm(features).fit != nullptr;
  });
  EXPECT_EQ(uses_them, has_any);
}

}  // namespace
}  // namespace atollrt
