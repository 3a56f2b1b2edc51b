// SPDX-License-Identifier: Apache-2.0
//
// What a fleet has on NATS, as bytes: names, records, objects, spools, calls and answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "serve/fleet/infer_call.h"
#include "serve/fleet/records.h"
#include "serve/fleet/spool.h"
#include "serve/fleet/subjects.h"
#include "serve/fleet/worker_list.h"

namespace atollserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Subjects, NamesOfModelsAreOneToken) {
  EXPECT_EQ(InferSubject("a.b *>%\x01"), "atoll.infer.a%2Eb%20%2A%3E%25%01");
  EXPECT_EQ(WorkSubject("m-1_x", 2), "atoll.work.m-1_x.2");
  for (int c = 0; c < 256; ++c) {
    const std::string name = std::string("x") + static_cast<char>(c) + "y";
    const std::string token = EncodeToken(name);
    EXPECT_EQ(token.find_first_of(". *>\t\r\n"), std::string::npos) << c;
    EXPECT_EQ(DecodeToken(token), name) << c;
  }
  // One token for a name, and nothing else is one.
  for (const char* token : {"a.b", "%", "%2", "%2e", "%41", "a b", "%GG"}) {
    EXPECT_EQ(DecodeToken(token), std::nullopt) << token;
  }
  // Servers make formats of a consumer's name.
  EXPECT_EQ(ConsumerName("a.b", 1).find('%'), std::string::npos);
}

TEST(Subjects, AddressesOfJobs) {
  const auto address = ParseWorkSubject("atoll.work.a%2Eb.2");
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->model, "a.b");
  EXPECT_EQ(address->priority, 2);
  for (const char* subject : {"atoll.work.a", "atoll.work.a.3", "atoll.work.a.-1", "atoll.work..1",
                              "atoll.work.a.1.2", "atoll.infer.a.1", "atoll.work.%2F.1", ""}) {
    EXPECT_FALSE(ParseWorkSubject(subject).has_value()) << subject;
  }
}

TEST(Subjects, Ids) {
  const std::string id = MakeJobId();
  EXPECT_TRUE(IsJobId(id)) << id;
  EXPECT_NE(id, MakeJobId());
  EXPECT_FALSE(IsJobId(id.substr(1)));
  EXPECT_FALSE(IsJobId(id.substr(1) + "."));
  EXPECT_TRUE(IsWorkerId(MakeWorkerId("a.host of mine")));
  EXPECT_TRUE(IsWorkerId(MakeWorkerId("")));
  for (const char* worker : {"", "default", "a.b", "a b", "*"}) {
    EXPECT_FALSE(IsWorkerId(worker)) << worker;
  }
}

TEST(Subjects, Base64OfRfc4648) {
  EXPECT_EQ(Base64Url("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64Url("fooba"), "Zm9vYmE=");
  EXPECT_EQ(Base64Url("foob"), "Zm9vYg==");
  EXPECT_EQ(Base64Url("\xfb\xff"), "-_8=");
  for (const char* text : {"foobar", "fooba", "foob", "", "\xfb\xff"}) {
    EXPECT_EQ(DecodeBase64Url(Base64Url(text)), text);
  }
  for (const char* text : {"Z", "Zm9vY", "Zm=v", "Zm9vYh", "+/8="}) {
    EXPECT_EQ(DecodeBase64Url(text), std::nullopt) << text;
  }
}

WorkerRecord ExampleWorker() {
  WorkerRecord record;
  record.worker = "w-1";
  record.device = "emu";
  record.places = 4;
  record.free = 3;
  record.models.push_back({.name = "m",
                           .version = "2",
                           .sha256 = "ab",
                           .inputs = {{.name = "in", .type = DataType::kInt8, .shape = {1, 3}}},
                           .outputs = {}});
  record.jobs.done = 7;
  record.latencies = {.count = 3, .p50_us = 400, .p99_us = 900};
  record.problems = {"a: b"};
  return record;
}

TEST(Records, WorkersSayAgainWhatTheySaid) {
  const auto parsed = ParseWorker(WorkerJson(ExampleWorker()));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->worker, "w-1");
  EXPECT_EQ(parsed->free, 3);
  EXPECT_EQ(parsed->jobs.done, 7);
  EXPECT_EQ(parsed->latencies.p99_us, 900);
  EXPECT_THAT(parsed->problems, ElementsAre("a: b"));
  ASSERT_EQ(parsed->models.size(), 1u);
  EXPECT_EQ(parsed->models[0].inputs[0].shape, (Shape{1, 3}));
  EXPECT_EQ(WorkerJson(*parsed), WorkerJson(ExampleWorker()));
}

TEST(Records, EveryPrefixAndEveryChangedByteIsReadOrRefused) {
  const std::string json = WorkerJson(ExampleWorker());
  for (size_t size = 0; size < json.size(); ++size) {
    const std::unique_ptr<char[]> exact(new char[size]);
    std::copy_n(json.data(), size, exact.get());
    EXPECT_FALSE(ParseWorker({exact.get(), size}).ok());
  }
  for (size_t i = 0; i < json.size(); ++i) {
    for (const char c : {'\0', '"', '}', '9', '-', '\xff'}) {
      std::string changed = json;
      changed[i] = c;
      const auto parsed = ParseWorker(changed);
      EXPECT_TRUE(parsed.ok() || !parsed.status().message().empty());
    }
  }
}

TEST(Records, ModelsOfWorkersHaveNamesAndVersions) {
  const auto with = [](const std::string& name, const std::string& version) {
    WorkerRecord record = ExampleWorker();
    record.models[0].name = name;
    record.models[0].version = version;
    return ParseWorker(WorkerJson(record)).status();
  };
  EXPECT_TRUE(with("m", "").ok());
  EXPECT_TRUE(with(std::string(200, 'x'), "12").ok());
  for (const std::string& name : {std::string(), std::string("a/b"), std::string(201, 'x')}) {
    EXPECT_THAT(with(name, "1").message(), HasSubstr("no name")) << name;
  }
  EXPECT_THAT(with("m", std::string(1000, '1')).message(), HasSubstr("version"));
}

TEST(WorkerList, HasThoseWhoWereHeardOfLately) {
  const WorkerList::Time start(std::chrono::seconds(1000));
  const auto after = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  WorkerList list;
  list.Hear("w-1", WorkerJson(ExampleWorker()), start);
  EXPECT_THAT(list.With("m", after(6000)), ElementsAre("w-1"));
  EXPECT_THAT(list.With("other", start), IsEmpty());
  EXPECT_EQ(list.Free("w-1"), 3);
  list.LeaveAlone("w-1", after(1000));
  list.Hear("w-1", WorkerJson(ExampleWorker()), after(500));
  EXPECT_THAT(list.With("m", after(999)), IsEmpty());
  EXPECT_THAT(list.With("m", after(1000)), ElementsAre("w-1"));
  // What it says is about another one: it has gone.
  list.Hear("w-2", WorkerJson(ExampleWorker()), after(1000));
  EXPECT_EQ(list.size(), 1u);
  list.Hear("w-1", "", after(1000));
  EXPECT_EQ(list.size(), 0u);
  EXPECT_EQ(list.Free("w-1"), 0);
}

TEST(WorkerList, ForgetsTheSilentAndIsBounded) {
  const WorkerList::Time start(std::chrono::seconds(1000));
  WorkerRecord record = ExampleWorker();
  record.models.resize(10);
  for (size_t i = 0; i < record.models.size(); ++i) {
    record.models[i].name = std::string(190, 'x') + std::to_string(i);
  }
  constexpr size_t kBytes = 100'000;
  WorkerList list(kBytes);
  const auto hear = [&](const std::string& worker, int seconds) {
    record.worker = worker;
    list.Hear(worker, WorkerJson(record), start + std::chrono::seconds(seconds));
  };
  constexpr size_t kMost = kBytes / (10 * 190);
  for (size_t i = 0; i < kMost; ++i) hear("v-" + std::to_string(i), 0);
  const size_t listed = list.size();
  EXPECT_GT(listed, kMost / 2);
  EXPECT_LT(listed, kMost);
  hear("v-0", 1);  // may say it again
  EXPECT_EQ(list.size(), listed);
  // Somebody else has room as soon as the others are silent.
  hear("w-2", 1);
  EXPECT_EQ(list.size(), listed);
  hear("w-2", 8);
  EXPECT_EQ(list.size(), 1u);
  EXPECT_THAT(list.With(record.models[0].name, start + std::chrono::seconds(8)),
              ElementsAre("w-2"));
}

TEST(Records, Placements) {
  const auto placed = ParsePlacement(R"(["a", "b c/12"])");
  ASSERT_TRUE(placed.ok());
  EXPECT_THAT(*placed, ElementsAre(PlacedModel{"a", 0}, PlacedModel{"b c", 12}));
  EXPECT_EQ(PlacementJson(*placed), R"(["a","b c/12"])");
  for (const char* json : {"", "{}", "[1]", R"([""])", R"(["a/0"])", R"(["a/b"])", R"(["../a/1"])",
                           R"(["a", "a/2"])", R"([["a"]])"}) {
    EXPECT_FALSE(ParsePlacement(json).ok()) << json;
  }
}

TEST(Records, Objects) {
  const ObjectInfo info = {.name = "m/1/model.tflite",
                           .nuid = "N",
                           .size = 5,
                           .chunks = 1,
                           .sha256 = std::string(32, '\x80'),
                           .deleted = false};
  const auto parsed = ParseObject(ObjectJson("b", info, 1024));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->sha256, info.sha256);
  EXPECT_EQ(parsed->size, 5u);
  EXPECT_EQ(parsed->made_from, "");
  EXPECT_EQ(ParseModelObjectName(info.name), (PlacedModel{"m", 1}));
  for (const char* name : {"m/model.tflite", "m/0/model.tflite", "m/1/other", "/1/model.tflite",
                           "m/1/x/model.tflite"}) {
    EXPECT_FALSE(ParseModelObjectName(name).has_value()) << name;
  }
  for (const char* json :
       {R"({"name":"a","nuid":"x.>","size":1,"chunks":1,"digest":"SHA-256=AAAA"})",
        R"({"name":"a","nuid":">","size":0,"chunks":0,)"
        R"("digest":"SHA-256=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="})",
        R"({"name":"a","nuid":">","deleted":true})", R"({"name":"a","nuid":"*","deleted":true})",
        R"({"name":"a","nuid":"x","size":-1})", R"({"name":"","nuid":"x"})", R"({"name":5})",
        R"({"name":"a","nuid":"x","size":1,"chunks":1,"digest":"MD5=AAAA"})"}) {
    EXPECT_FALSE(ParseObject(json).ok()) << json;
  }
}

TEST(Records, CompiledObjects) {
  ObjectInfo info = {.name = CompiledObjectName("a b", 7, "atoll-1-isa3"),
                     .nuid = "N",
                     .size = 5,
                     .chunks = 1,
                     .sha256 = std::string(32, '\x80'),
                     .made_from = std::string(32, '\x7f')};
  EXPECT_EQ(info.name, "a b/7/atoll-1-isa3.tflite");
  const std::string json = ObjectJson("b", info, 1024);
  const auto parsed = ParseObject(json);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->made_from, info.made_from);
  const auto name = ParseCompiledObjectName(info.name);
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->model, (PlacedModel{"a b", 7}));
  EXPECT_EQ(name->form, "atoll-1-isa3");
  EXPECT_FALSE(ParseModelObjectName(info.name).has_value());
  for (const std::string other :
       {"m/1/model.tflite", "m/1/.tflite", "m/1/A.tflite", "m/1/a.b.tflite", "m/1/a",
        "m/1/a/b.tflite", "m/0/a.tflite", "m/a.tflite", "/1/a.tflite", "m/1/../a.tflite"}) {
    EXPECT_FALSE(ParseCompiledObjectName(other).has_value()) << other;
  }
  EXPECT_FALSE(ParseCompiledObjectName("m/1/" + std::string(101, 'a') + ".tflite").has_value());
  // Headers are anybody's; this one has one digest.
  const size_t at = json.find("[\"SHA-256=");
  ASSERT_NE(at, std::string::npos);
  const std::string before = json.substr(0, at), after = json.substr(json.find(']', at) + 1);
  for (const char* value : {"[]", "\"SHA-256=AAAA\"", "[5]", "[\"SHA-256=AAAA\"]", "{}", "null"}) {
    EXPECT_FALSE(ParseObject(before + value + after).ok()) << value;
  }
  for (const char* headers : {"5", "[]", R"({"Other":["x"]})", "null"}) {
    const auto others = ParseObject(R"({"name":"a","nuid":"x","size":0,"digest":"SHA-256=)"
                                    R"(AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","headers":)" +
                                    std::string(headers) + "}");
    ASSERT_TRUE(others.ok()) << others.status().message();
    EXPECT_EQ(others->made_from, "");
  }
}

ModelInfo ExampleModel() {
  ModelInfo model;
  model.name = "m";
  model.version = "1";
  model.inputs.push_back({.name = "in", .type = DataType::kInt8, .shape = {1, 2, 2, 1}});
  model.outputs.push_back({.name = "out", .type = DataType::kInt8, .shape = {1, 3}});
  return model;
}

std::shared_ptr<const std::string> Body(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

TEST(InferCalls, BudgetsBecomeDeadlines) {
  const MonotonicTime now = std::chrono::steady_clock::now();
  const auto call = ReadCall({.json_bytes = "0", .budget_us = "1500", .priority = "7"},
                             Body("abcd"), ExampleModel(), now);
  ASSERT_TRUE(call.ok()) << call.status().message();
  EXPECT_EQ(call->request.deadline, now + std::chrono::microseconds(1500));
  EXPECT_EQ(call->request.priority, 7u);
  ASSERT_EQ(call->request.inputs.size(), 1u);
  EXPECT_EQ(call->request.inputs[0].bytes.size(), 4u);
  for (const char* budget : {"-1", "1.5", "x", "86400000001", "18446744073709551616"}) {
    EXPECT_FALSE(
        ReadCall({.json_bytes = "0", .budget_us = budget}, Body("abcd"), ExampleModel(), now).ok())
        << budget;
  }
}

TEST(InferCalls, PicturesTakeTheSizeOfTheInput) {
  const std::string picture = "P5 4 2 255\n" + std::string("\x00\x00\xff\xff\x00\x00\xff\xff", 8);
  const auto tensor = PictureTensor(picture, ExampleModel());
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  // The middle of two halves, black and white, as int8.
  ASSERT_EQ((*tensor).size(), 4u);
  EXPECT_EQ((*tensor)[0], (*tensor)[2]);
  EXPECT_LT((*tensor)[0], -60);
  EXPECT_GT((*tensor)[1], 60);
  ModelInfo other = ExampleModel();
  other.inputs[0].shape = {1, 12};
  EXPECT_EQ(PictureTensor(picture, other).code(), atollrt::StatusCode::kUnsupported);
  other = ExampleModel();
  other.inputs[0].type = DataType::kFp32;
  EXPECT_EQ((*PictureTensor(picture, other)).size(), 16u);
}

TEST(InferCalls, ThereIsNoSharedMemory) {
  const auto call =
      ReadCall({},
               Body(R"({"inputs":[{"name":"in","datatype":"INT8","shape":[1,2,2,1],"parameters":)"
                    R"({"shared_memory_region":"r","shared_memory_byte_size":4}}]})"),
               ExampleModel(), {});
  EXPECT_EQ(call.code(), atollrt::StatusCode::kUnsupported);
}

TEST(InferCalls, AnswersAreTakenApart) {
  const ModelInfo model = ExampleModel();
  InferBody body;
  body.binary = true;
  InferOutcome outcome;
  outcome.model = "m";
  outcome.version = "1";
  outcome.outputs.push_back(
      {.name = "out", .type = DataType::kInt8, .shape = {1, 3}, .bytes = std::string("\0ab", 3)});
  const InferReply reply = ReplyOf(body, model, outcome);
  EXPECT_EQ(reply.error, "");
  std::string json_bytes;
  for (const auto& [name, value] : reply.headers) {
    if (std::string(name) == kLengthHeader) json_bytes = value;
  }
  const auto outputs = ParseAnswer(reply.body, json_bytes);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  ASSERT_EQ((*outputs).size(), 1u);
  EXPECT_EQ((*outputs)[0].bytes, std::string("\0ab", 3));
  for (size_t size = 0; size < reply.body.size(); ++size) {
    EXPECT_FALSE(ParseAnswer(reply.body.substr(0, size), json_bytes).ok()) << size;
  }
  EXPECT_FALSE(ParseAnswer(reply.body + "x", json_bytes).ok());
}

TEST(InferCalls, ErrorsHaveTheFormOfServices) {
  const InferReply reply =
      ErrorReply(atollrt::ResourceExhausted("busy"), std::chrono::milliseconds(3));
  EXPECT_EQ(reply.code, 503);
  EXPECT_EQ(reply.body, R"({"error":"busy"})");
  std::string all;
  for (const auto& [name, value] : reply.headers) all += std::string(name) + ": " + value + "\n";
  EXPECT_THAT(all, HasSubstr("Nats-Service-Error: busy\nNats-Service-Error-Code: 503\n"));
  EXPECT_THAT(all, HasSubstr("Atoll-Retry-After-Ms: 3\n"));
}

class Spools : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "spool.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static SpoolJob Job(const std::string& name) {
    return {.job = MakeJobId(), .name = name, .model = "m", .headers = {{"A", "b"}}};
  }
  std::string Bytes() const {
    std::ifstream file(folder_ + "/jobs.spool", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetBytes(const std::string& bytes) const {
    std::ofstream(folder_ + "/jobs.spool", std::ios::binary) << bytes;
  }
  std::string folder_;
};

TEST_F(Spools, KeepWhatIsNotDone) {
  const SpoolJob first = Job("one"), second = Job("two");
  {
    auto spool = Spool::Open(folder_);
    ASSERT_TRUE(spool.ok()) << spool.status().message();
    ASSERT_TRUE((*spool)->Add({first, second}, {std::string("a\nb\0", 4), ""}).ok());
    EXPECT_EQ(Spool::Open(folder_).code(), atollrt::StatusCode::kDeviceBusy);
    ASSERT_TRUE((*spool)->Done(second.job).ok());
  }
  auto spool = Spool::Open(folder_);
  ASSERT_TRUE(spool.ok()) << spool.status().message();
  ASSERT_EQ((*spool)->Waiting().size(), 1u);
  EXPECT_EQ((*spool)->Waiting()[0].headers.at("A"), "b");
  EXPECT_EQ(*(*spool)->Body(first.job), std::string("a\nb\0", 4));
  EXPECT_TRUE((*spool)->HasName("two"));
  EXPECT_EQ((*spool)->Body(second.job).code(), atollrt::StatusCode::kNotFound);
  ASSERT_TRUE((*spool)->Clear().ok());
  EXPECT_NE(Bytes(), "");  // something waits
  ASSERT_TRUE((*spool)->Done(first.job).ok());
  ASSERT_TRUE((*spool)->Clear().ok());
  EXPECT_EQ(Bytes(), "");
}

TEST_F(Spools, OfEveryLengthHaveWholeJobs) {
  {
    auto spool = Spool::Open(folder_);
    ASSERT_TRUE(spool.ok());
    for (const char* name : {"one", "two", "three"}) {
      ASSERT_TRUE((*spool)->Add({Job(name)}, {std::string(name) + "\n{}"}).ok());
    }
  }
  const std::string whole = Bytes();
  size_t before = 0;
  for (size_t size = 0; size <= whole.size(); ++size) {
    SetBytes(whole.substr(0, size));
    auto spool = Spool::Open(folder_);
    ASSERT_TRUE(spool.ok()) << size;
    const auto jobs = (*spool)->Waiting();
    EXPECT_GE(jobs.size(), before);
    before = jobs.size();
    for (const SpoolJob& job : jobs) {
      const auto body = (*spool)->Body(job.job);
      ASSERT_TRUE(body.ok());
      EXPECT_EQ(*body, job.name + "\n{}");
    }
    // It goes on behind the last whole one.
    ASSERT_TRUE((*spool)->Add({Job("more")}, {"x"}).ok());
    EXPECT_EQ((*spool)->Waiting().size(), before + 1);
  }
  EXPECT_EQ(before, 3u);
}

TEST_F(Spools, OfOthersAreRefusedOrCutOff) {
  for (
      const char* line :
      {"{}", "[]", "null", R"({"done":"x"})", R"({"job":"x","name":"n"})",
       R"({"job":"aaaaaaaaaaaaaaaaaaaaaa","name":"n","model":"m","priority":3,"headers":{},"bytes":1})",
       R"({"job":"aaaaaaaaaaaaaaaaaaaaaa","name":"n","model":"m","priority":1,"headers":{"a":1},"bytes":1})",
       R"({"job":"aaaaaaaaaaaaaaaaaaaaaa","name":"n","model":"","priority":1,"headers":{},"bytes":1})",
       R"({"job":"aaaaaaaaaaaaaaaaaaaaaa","name":"n","model":"m","priority":1,"headers":{},"bytes":99999999999})"}) {
    EXPECT_FALSE(ParseSpoolLine(line).ok()) << line;
    SetBytes(std::string(line) + "\nx\n");
    auto spool = Spool::Open(folder_);
    ASSERT_TRUE(spool.ok());
    EXPECT_TRUE((*spool)->Waiting().empty());
  }
}

}  // namespace
}  // namespace atollserve
