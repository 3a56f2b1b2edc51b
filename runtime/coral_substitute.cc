// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/sha256.h"
#include "runtime/substitute.h"

namespace atollrt {
namespace {

// ---- What is known of public models ------------------------------------------------------------

struct KnownPair {
  std::string_view compiled;  // hash of the file
  std::string_view package;   // hash; "": not known
  off_t original_bytes;       // 0: not known
  std::string_view original;  // hash of the file
};
constexpr KnownPair kKnownPairs[] = {
#define ATOLL_CORAL_PAIR(name, compiled, package, bytes, original) \
  {compiled, package, bytes, original},
#include "runtime/coral_pairs.inc"
#undef ATOLL_CORAL_PAIR
};

// ---- Graphs ------------------------------------------------------------------------------------

bool IsForCoral(const Node& node) {
  return node.type == OpType::kCUSTOM && node.custom_name == kEdgeTpuOperator;
}

bool IsForCoral(const Model& model) {
  return std::ranges::any_of(model.graphs(), [](const Graph& graph) {
    return std::ranges::any_of(graph.nodes, [](const Node& node) { return IsForCoral(node); });
  });
}

// The options of the only operator for a Coral; empty if there are several.
std::span<const uint8_t> PackageOf(const Graph& graph) {
  std::span<const uint8_t> package;
  for (const Node& node : graph.nodes) {
    if (!IsForCoral(node)) continue;
    if (!package.empty()) return {};
    package = node.custom_options;
  }
  return package;
}

std::string Hash(std::span<const uint8_t> bytes) { return Sha256Hex(bytes.data(), bytes.size()); }

// "uint8 [1, 10], scale 0.5 and zero point 3"
std::string DescribeEnd(const Tensor& tensor) {
  std::string text = Format("%s %s", DataTypeName(tensor.type), ShapeString(tensor.shape).c_str());
  if (tensor.quantization.scales.size() == 1) {
    text += Format(", scale %.9g and zero point %d", static_cast<double>(tensor.scale()),
                   static_cast<int>(tensor.zero_point()));
  }
  return text;
}

struct MatchRules {
  bool compares_quantization = true;
  bool may_cut = false;  // ends may be tensors inside of the other graph
};

bool IsSame(const Tensor& a, const Tensor& b, const MatchRules& rules) {
  return a.type == b.type && a.shape == b.shape &&
         (!rules.compares_quantization ||
          (a.quantization.scales == b.quantization.scales &&
           a.quantization.zero_points == b.quantization.zero_points));
}

// The tensors of another graph that stand for the inputs and outputs of a compiled one.
struct Ends {
  std::vector<int32_t> inputs, outputs;
};

// By names that no two tensors of the other graph have; false unless all are found and the same.
bool FindByName(const Graph& compiled, const Graph& other, const MatchRules& rules, Ends* ends) {
  constexpr int32_t kSeveral = -1;
  std::map<std::string_view, int32_t> tensors;
  for (size_t i = 0; i < other.tensors.size(); ++i) {
    const auto [at, is_new] = tensors.emplace(other.tensors[i].name, static_cast<int32_t>(i));
    if (!is_new) at->second = kSeveral;
  }
  const auto find = [&](const std::vector<int32_t>& own, const std::vector<int32_t>& others,
                        std::vector<int32_t>* found) {
    std::set<int32_t> taken;
    for (const int32_t index : own) {
      const Tensor& tensor = compiled.tensors[static_cast<size_t>(index)];
      const auto at = tensors.find(tensor.name);
      if (at == tensors.end() || at->second == kSeveral) return false;
      const Tensor& same = other.tensors[static_cast<size_t>(at->second)];
      const bool is_end = std::ranges::find(others, at->second) != others.end();
      if (!is_end && (!rules.may_cut || same.is_constant() || same.is_variable)) return false;
      if (!IsSame(tensor, same, rules) || !taken.insert(at->second).second) return false;
      found->push_back(at->second);
    }
    // Some of the other graph's would be left over.
    return rules.may_cut || own.size() == others.size();
  };
  return find(compiled.inputs, other.inputs, &ends->inputs) &&
         find(compiled.outputs, other.outputs, &ends->outputs);
}

Status CheckPositions(const Graph& compiled, const Graph& other, const MatchRules& rules) {
  const auto check = [&](const char* kind, const std::vector<int32_t>& own,
                         const std::vector<int32_t>& others) -> Status {
    if (own.size() != others.size()) {
      return InvalidArgument("it has %zu %s%s, the compiled model %zu", others.size(), kind,
                             others.size() == 1 ? "" : "s", own.size());
    }
    for (size_t i = 0; i < own.size(); ++i) {
      const Tensor& a = compiled.tensors[static_cast<size_t>(own[i])];
      const Tensor& b = other.tensors[static_cast<size_t>(others[i])];
      if (!IsSame(a, b, rules)) {
        return InvalidArgument("its %s %zu is %s, that of the compiled model %s", kind, i,
                               DescribeEnd(b).c_str(), DescribeEnd(a).c_str());
      }
    }
    return {};
  };
  ATOLL_RETURN_IF_ERROR(check("input", compiled.inputs, other.inputs));
  return check("output", compiled.outputs, other.outputs);
}

// Leaves what lies between the ends.
Status Cut(const Ends& ends, Graph* graph) {
  constexpr int32_t kNobody = -1;
  std::vector<int32_t> writer(graph->tensors.size(), kNobody);
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    for (const int32_t output : graph->nodes[i].outputs) {
      writer[static_cast<size_t>(output)] = static_cast<int32_t>(i);
    }
    // What touches state has to run although nobody needs its outputs.
    const OpType type = graph->nodes[i].type;
    if (type == OpType::kCALL_ONCE || type == OpType::kASSIGN_VARIABLE) {
      return InvalidArgument("it keeps state, so no part of it can run alone");
    }
  }
  const std::set<int32_t> inputs(ends.inputs.begin(), ends.inputs.end());
  std::vector<bool> is_needed(graph->nodes.size());
  std::vector<int32_t> open = ends.outputs;
  for (const int32_t output : ends.outputs) {
    if (writer[static_cast<size_t>(output)] != kNobody || inputs.contains(output)) continue;
    return InvalidArgument("nothing in it computes '%s'",
                           graph->tensors[static_cast<size_t>(output)].name.c_str());
  }
  while (!open.empty()) {
    const int32_t tensor = open.back();
    open.pop_back();
    if (tensor < 0 || inputs.contains(tensor)) continue;
    if (std::ranges::find(graph->inputs, tensor) != graph->inputs.end()) {
      return InvalidArgument("what it computes depends on its input '%s', too",
                             graph->tensors[static_cast<size_t>(tensor)].name.c_str());
    }
    const int32_t node = writer[static_cast<size_t>(tensor)];
    if (node == kNobody || is_needed[static_cast<size_t>(node)]) continue;
    is_needed[static_cast<size_t>(node)] = true;
    const std::vector<int32_t>& more = graph->nodes[static_cast<size_t>(node)].inputs;
    open.insert(open.end(), more.begin(), more.end());
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    if (!is_needed[i]) continue;
    for (const int32_t output : graph->nodes[i].outputs) {
      if (!inputs.contains(output)) continue;
      return InvalidArgument("it computes '%s', an input of the compiled model, with its outputs",
                             graph->tensors[static_cast<size_t>(output)].name.c_str());
    }
    nodes.push_back(std::move(graph->nodes[i]));
  }
  graph->nodes = std::move(nodes);
  return {};
}

// Gives inputs and outputs the numbers that they have in the compiled graph, so that whoever knows
// those, from its signatures for example, finds them.
void Renumber(const Graph& compiled, Graph* graph) {
  // The new place of each tensor, and which tensor gets a place.
  size_t count = graph->tensors.size();
  for (const auto* own : {&compiled.inputs, &compiled.outputs}) {
    for (const int32_t index : *own) count = std::max(count, static_cast<size_t>(index) + 1);
  }
  std::vector<int32_t> place(count), tensor_at(count);
  for (size_t i = 0; i < count; ++i) place[i] = tensor_at[i] = static_cast<int32_t>(i);
  std::map<int32_t, int32_t> wanted;  // by place
  std::set<int32_t> moved;
  for (const auto& [own, others] : {std::pair(&compiled.inputs, &graph->inputs),
                                    std::pair(&compiled.outputs, &graph->outputs)}) {
    for (size_t i = 0; i < own->size(); ++i) {
      const auto [at, is_new] = wanted.emplace((*own)[i], (*others)[i]);
      // Two of one graph are one in the other: there is no such numbering.
      if (at->second != (*others)[i] || (is_new && !moved.insert((*others)[i]).second)) return;
    }
  }
  for (const auto& [to, tensor] : wanted) {
    // The two change places.
    const int32_t from = place[static_cast<size_t>(tensor)];
    const int32_t other = tensor_at[static_cast<size_t>(to)];
    std::swap(tensor_at[static_cast<size_t>(to)], tensor_at[static_cast<size_t>(from)]);
    place[static_cast<size_t>(tensor)] = to;
    place[static_cast<size_t>(other)] = from;
  }
  // Places that only the compiled graph has are tensors that nobody uses.
  std::vector<Tensor> tensors(count);
  for (size_t i = 0; i < count; ++i) {
    tensors[i].type = DataType::kUInt8;
    tensors[i].shape = {1};
  }
  for (size_t i = 0; i < graph->tensors.size(); ++i) {
    tensors[static_cast<size_t>(place[i])] = std::move(graph->tensors[i]);
  }
  graph->tensors = std::move(tensors);
  const auto move = [&place](std::vector<int32_t>* indices) {
    for (int32_t& index : *indices) {
      if (index >= 0) index = place[static_cast<size_t>(index)];
    }
  };
  move(&graph->inputs);
  move(&graph->outputs);
  for (Node& node : graph->nodes) {
    move(&node.inputs);
    move(&node.outputs);
    move(&node.intermediates);
  }
  for (const auto* own : {&compiled.inputs, &compiled.outputs}) {
    for (const int32_t index : *own) {
      const Tensor& as = compiled.tensors[static_cast<size_t>(index)];
      Tensor& tensor = graph->tensors[static_cast<size_t>(index)];
      tensor.name = as.name;
      // Other shapes would not be those that the model was compiled for.
      tensor.shape_signature.clear();
    }
  }
}

// `other` as what stands for `compiled`.
Result<std::shared_ptr<const Model>> Fit(const Model& compiled, std::shared_ptr<const Model> other,
                                         const MatchRules& rules) {
  if (IsForCoral(*other)) return Unsupported("it was compiled for a Coral, too");
  Ends ends;
  Graph graph = other->graph();
  if (FindByName(compiled.graph(), graph, rules, &ends)) {
    const auto are_all = [](std::vector<int32_t> some, std::vector<int32_t> all) {
      std::ranges::sort(some);
      std::ranges::sort(all);
      return some == all;
    };
    if (!are_all(ends.inputs, graph.inputs) || !are_all(ends.outputs, graph.outputs)) {
      ATOLL_RETURN_IF_ERROR(Cut(ends, &graph));
    }
    graph.inputs = std::move(ends.inputs);
    graph.outputs = std::move(ends.outputs);
  } else {
    ATOLL_RETURN_IF_ERROR(CheckPositions(compiled.graph(), graph, rules));
  }
  // Executables that came with it are of the graph as it was.
  graph.compiled.clear();
  for (Node& node : graph.nodes) node.compiled = -1;
  Renumber(compiled.graph(), &graph);
  return Model::WithGraph(std::move(other), std::move(graph));
}

// ---- Files -------------------------------------------------------------------------------------

// Far larger than any that a Coral's compiler takes; what is larger is not looked at.
constexpr off_t kMaxModelBytes = 512 << 20;
constexpr size_t kMaxFiles = 4096;

struct File {
  std::string path;
  struct stat info = {};
};

bool IsModelFile(const char* path, struct stat* info) {
  return stat(path, info) == 0 && S_ISREG(info->st_mode) && info->st_size > 0 &&
         info->st_size <= kMaxModelBytes;
}

// What ATOLL_MODEL_PATH names, in its order, those of a folder by name. `problems`: sentences about
// what cannot be read.
std::vector<File> FilesInModelPath(std::vector<std::string>* problems) {
  std::vector<File> files;
  const char* value = std::getenv("ATOLL_MODEL_PATH");
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string entry(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
    if (entry.empty()) continue;
    File file{entry};
    if (IsModelFile(entry.c_str(), &file.info)) {
      files.push_back(file);
      continue;
    }
    DIR* const folder = opendir(entry.c_str());
    if (folder == nullptr) {
      problems->push_back(
          Format("'%s' of ATOLL_MODEL_PATH: %s", entry.c_str(), std::strerror(errno)));
      continue;
    }
    std::vector<std::string> names;
    while (const dirent* const item = readdir(folder)) {
      const std::string_view name = item->d_name;
      if (name.ends_with(".tflite")) names.emplace_back(name);
    }
    closedir(folder);
    std::ranges::sort(names);
    for (const std::string& name : names) {
      file.path = entry + "/" + name;
      if (IsModelFile(file.path.c_str(), &file.info)) files.push_back(file);
    }
  }
  if (files.size() > kMaxFiles) {
    problems->push_back(Format("ATOLL_MODEL_PATH names %zu models, of which the first %zu count",
                               files.size(), kMaxFiles));
    files.resize(kMaxFiles);
  }
  return files;
}

// The hash of a file, "" if it cannot be read. Remembered while the file does not change.
std::string HashOf(const File& file) {
  struct Known {
    off_t size;
    timespec time;
    std::string hash;
  };
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, Known>;
  const std::lock_guard lock(mutex);
  const auto at = known->find(file.path);
  if (at != known->end() && at->second.size == file.info.st_size &&
      at->second.time.tv_sec == file.info.st_mtim.tv_sec &&
      at->second.time.tv_nsec == file.info.st_mtim.tv_nsec) {
    return at->second.hash;
  }
  // Read and not mapped: nobody knows who writes what lies there.
  const int fd = open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  auto bytes = Buffer::Allocate(static_cast<size_t>(file.info.st_size));
  size_t done = 0;
  while (bytes.ok() && done < bytes->size()) {
    const ssize_t count = read(fd, bytes->data() + done, bytes->size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  close(fd);
  if (!bytes.ok() || done < bytes->size()) return "";
  if (known->size() >= kMaxFiles) known->clear();
  std::string hash = Hash(bytes->bytes());
  (*known)[file.path] = {file.info.st_size, file.info.st_mtim, hash};
  return hash;
}

// What the original of a compiled file is called, by the names that Google's compiler gives.
struct UsualNames {
  std::vector<std::string> paths;  // beside the file, the likeliest first
  std::string hint;                // of these, the one to tell people; empty: none
};
UsualNames UsualNamesFor(const std::string& path) {
  UsualNames names;
  if (path.empty()) return names;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "" : path.substr(0, slash + 1);
  std::string_view stem = std::string_view(path).substr(folder.size());
  constexpr std::string_view kExtension = ".tflite";
  if (stem.ends_with(kExtension)) stem.remove_suffix(kExtension.size());
  const auto add = [&](std::string_view name) {
    names.paths.push_back(folder + std::string(name) + std::string(kExtension));
  };
  constexpr std::string_view kFrigate = "edgetpu_model";
  const bool is_compiled = stem.ends_with("_edgetpu") || stem.ends_with("-edgetpu");
  if (is_compiled && stem.size() > 8) {
    stem.remove_suffix(8);
    add(stem);
    // Of models that were compiled together, A_cocompiled_with_B is A.
    const size_t together = stem.find("_cocompiled_with_");
    if (together != stem.npos && together > 0) add(stem.substr(0, together));
    // A segment of a pipeline was made from a part of a model, which is in no file.
    if (together != 0 && stem.find("_segment_") == stem.npos) names.hint = names.paths.back();
  }
  add("cpu_model");
  if (stem == kFrigate) names.hint = names.paths.back();
  return names;
}

// ---- The search --------------------------------------------------------------------------------

class Search {
 public:
  explicit Search(const Model& compiled)
      : compiled_(compiled), package_(PackageOf(compiled.graph())) {
    rules_.may_cut = compiled.path().empty() && compiled.graph().nodes.size() == 1;
  }

  Result<std::shared_ptr<const Model>> Take(std::shared_ptr<const Model> fallback) {
    rules_.compares_quantization = false;
    auto fitting = Fit(compiled_, std::move(fallback), rules_);
    if (!fitting.ok()) return Status(fitting.status()).WithContext("the fallback model");
    return fitting;
  }

  Result<std::shared_ptr<const Model>> Run() {
    const std::vector<File> files = FilesInModelPath(&reasons_);
    if (!files.empty() && ByHash(files)) return found_;
    if (BesideFile(compiled_.path())) return found_;
    for (const File& file : files) {
      if (package_.empty() || file.path.find("edgetpu") == file.path.npos) continue;
      const auto other = Model::FromFile(file.path);
      if (!other.ok()) continue;
      if (std::ranges::equal(PackageOf((*other)->graph()), package_) && BesideFile(file.path)) {
        return found_;
      }
    }
    return NotFound();
  }

 private:
  Status NotFound() const {
    std::string why;
    // What lies at the usual places, and does not fit; more of them would tell no more.
    for (size_t i = 0; i < std::min<size_t>(reasons_.size(), 3); ++i) why += reasons_[i] + "; ";
    const UsualNames names = UsualNamesFor(compiled_.path());
    const std::string beside =
        names.hint.empty()
            ? "lay it beside the compiled file, under its name without '_edgetpu'"
            : "lay it beside this one as '" + names.hint.substr(names.hint.rfind('/') + 1) + "'";
    return Unsupported(
        "the model was compiled for a Coral Edge TPU by Google's compiler, and no Coral is used; "
        "%sthe model that it was made from can run instead: give it as the fallback model "
        "(AtollInterpreterOptions, or --fallback-model of the command), put it into a folder that "
        "ATOLL_MODEL_PATH names, which is enough for "
        "Coral's public models, or %s",
        why.c_str(), beside.c_str());
  }

  bool ByHash(const std::vector<File>& files) {
    const std::string whole = Hash(compiled_.bytes());
    const std::string package = package_.empty() ? "none" : Hash(package_);
    for (const KnownPair& pair : kKnownPairs) {
      if (pair.compiled != whole && pair.package != package) continue;
      for (const File& file : files) {
        if (pair.original_bytes != 0 && pair.original_bytes != file.info.st_size) continue;
        if (HashOf(file) == pair.original && Try(file.path)) return true;
      }
    }
    return false;
  }

  bool BesideFile(const std::string& path) {
    for (const std::string& candidate : UsualNamesFor(path).paths) {
      struct stat info;
      if (lstat(candidate.c_str(), &info) == 0 && Try(candidate)) return true;
    }
    return false;
  }

  bool Try(const std::string& path) {
    auto model = Model::FromFile(path);
    if (!model.ok()) {
      reasons_.push_back(model.status().message());
      return false;
    }
    auto fitting = Fit(compiled_, *std::move(model), rules_);
    if (!fitting.ok()) {
      reasons_.push_back(
          Format("'%s' does not fit: %s", path.c_str(), fitting.status().message().c_str()));
      return false;
    }
    found_ = *std::move(fitting);
    return true;
  }

  const Model& compiled_;
  const std::span<const uint8_t> package_;
  MatchRules rules_;
  std::shared_ptr<const Model> found_;
  std::vector<std::string> reasons_;  // why files were not taken
};

void NoteOnce(const Model& compiled, const Model& substitute) {
  const auto name = [](const Model& model, const char* otherwise) {
    return model.path().empty() ? std::string(otherwise) : "'" + model.path() + "'";
  };
  std::pair<std::string, std::string> pair(name(compiled, "a model"),
                                           name(substitute, "the fallback model"));
  // Models without a name are told apart by what is in them.
  std::string key = compiled.path().empty() ? Hash(PackageOf(compiled.graph())) : "";
  key += pair.first + "\n" + pair.second;
  static std::mutex mutex;
  static auto* const noted = new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    constexpr size_t kMaxNotes = 1024;
    if (noted->size() >= kMaxNotes || !noted->insert(std::move(key)).second) return;
  }
  Log(LogSeverity::kWarning,
      "%s was compiled for a Coral, and none is used: %s runs instead; it may be another "
      "conversion, whose bytes differ from the Coral's",
      pair.first.c_str(), pair.second.c_str());
}

// The substitutes of models while somebody uses them: interpreters of one model share what runs,
// and with it what devices compile for it.
class Substitutes {
 public:
  using Pointer = std::shared_ptr<const Model>;

  // nullptr: none is known.
  Pointer Find(const Pointer& compiled, const Pointer& fallback) {
    const std::lock_guard lock(mutex_);
    return Known(compiled, fallback);
  }
  // The one that was there first.
  Pointer Add(const Pointer& compiled, const Pointer& fallback, const Pointer& substitute) {
    const std::lock_guard lock(mutex_);
    if (Pointer known = Known(compiled, fallback)) return known;
    entries_.push_back({compiled, fallback, fallback != nullptr, substitute});
    return substitute;
  }

 private:
  struct Entry {
    std::weak_ptr<const Model> compiled, fallback;
    bool has_fallback;
    std::weak_ptr<const Model> substitute;
  };

  Pointer Known(const Pointer& compiled, const Pointer& fallback) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.substitute.expired(); });
    for (const Entry& entry : entries_) {
      if (entry.compiled.lock() == compiled && entry.has_fallback == (fallback != nullptr) &&
          entry.fallback.lock() == fallback) {
        return entry.substitute.lock();
      }
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace

Status SubstituteForCoral(std::shared_ptr<const Model>* model, InterpreterOptions* options,
                          const char** path) {
  *path = nullptr;
  if (options->delegate != nullptr && options->delegate->is_coral()) return {};
  const std::shared_ptr<const Model> compiled = *model;
  if (!IsForCoral(*compiled)) return {};
  static auto* const known = new Substitutes;
  std::shared_ptr<const Model> substitute = known->Find(compiled, options->fallback);
  if (substitute == nullptr) {
    Search search(*compiled);
    if (options->fallback != nullptr) {
      ATOLL_ASSIGN_OR_RETURN(substitute, search.Take(options->fallback));
    } else {
      ATOLL_ASSIGN_OR_RETURN(substitute, search.Run());
    }
    substitute = known->Add(compiled, options->fallback, substitute);
  }
  NoteOnce(*compiled, *substitute);
  *path = substitute->path().c_str();
  *model = std::move(substitute);
  options->fallback = nullptr;
  return {};
}

}  // namespace atollrt
