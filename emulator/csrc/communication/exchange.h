// Brings the contributions of a group's ranks together. Posting never waits; collecting does, in
// slices, between which it looks for a peer that has ended or gone another way, and for Ctrl-C.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <cstdlib>
#include <map>

#include "../dispatch/metadata_json.h"
#include "contribution.h"

namespace maya {

// This process among all ranks.
inline std::atomic<int64_t>& own_global_rank() {
  static auto* rank = new std::atomic<int64_t>(0);
  return *rank;
}

// One collective or message, seen from this rank: keys it has posted and keys it will read.
struct Round {
  std::string operation;  // "all_reduce", for messages
  int64_t number = 0;     // of the group's exchanges, or of the pair's
  std::string call;       // what every other side must have called
  std::string own_key;
  std::vector<std::string> keys;  // to read
  std::vector<int> sources;       // group ranks that post them
  // Who reads last removes everything; empty: each key has one reader, which removes it.
  std::string readers_key;
  int readers = 0;
  std::vector<std::string> all_keys;
};

class Exchange {
 public:
  Exchange(c10::intrusive_ptr<c10d::Store> store, int rank, std::vector<int64_t> members, const std::string& name, std::chrono::milliseconds timeout)
      : store_(std::move(store)), rank_(rank), members_(std::move(members)), name_(name), timeout_(timeout) {
    base_ = "maya/values/" + restart() + "/" + name + "#" + std::to_string(incarnation(name)) + "/";
  }

  int size() const { return static_cast<int>(members_.size()); }
  int rank() const { return rank_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // All give, all read (root < 0) or only the root does.
  std::pair<Round, Contribution> all_give(const std::string& operation, const std::string& call, std::vector<at::Tensor> values, int root = -1) {
    Round round = begin(operation, call);
    Contribution own{call, std::move(values)};
    auto key = [&](int source) { return base_ + std::to_string(round.number) + "/" + std::to_string(source); };
    round.own_key = key(rank_);
    for (int source = 0; source < size(); ++source) {
      if (source == rank_) continue;
      if (root < 0 || root == rank_) {
        round.keys.push_back(key(source));
        round.sources.push_back(source);
      }
      round.all_keys.push_back(key(source));
    }
    round.all_keys.push_back(round.own_key);
    if (root < 0) {
      round.readers_key = base_ + std::to_string(round.number) + "/readers";
      round.readers = size();
    }
    if (size() > 1 && rank_ != root) transport().post({round.own_key}, {encode(own)});
    else come_by(round);
    return {std::move(round), std::move(own)};
  }

  // The root gives, all others read.
  Round root_gives(const std::string& operation, const std::string& call, const std::vector<at::Tensor>& values, int root) {
    Round round = begin(operation, call);
    std::string key = base_ + std::to_string(round.number) + "/" + std::to_string(root);
    if (size() == 1) return round;
    if (rank_ == root) {
      transport().post({key}, {encode({call, values})});
    } else {
      come_by(round);
      round.keys = {key};
      round.sources = {root};
      round.all_keys = {key};
      round.readers_key = base_ + std::to_string(round.number) + "/readers";
      round.readers = size() - 1;
    }
    return round;
  }

  // Each pair of ranks has a message of its own. gives[d]: for rank d (no entry: nothing travels);
  // reads[s]: whether rank s has one for us.
  Round pairs(const std::string& operation, const std::string& call, const std::map<int, std::vector<at::Tensor>>& gives, const std::vector<int>& reads) {
    Round round = begin(operation, call);
    auto key = [&](int from, int to) { return base_ + std::to_string(round.number) + "/" + std::to_string(from) + "-" + std::to_string(to); };
    std::vector<std::string> keys;
    std::vector<Bytes> values;
    for (const auto& [to, tensors] : gives) {
      keys.push_back(key(rank_, to));
      values.push_back(encode({call, tensors}));
    }
    come_by(round);
    if (!keys.empty()) transport().post(keys, values);
    for (int from : reads) {
      round.keys.push_back(key(from, rank_));
      round.sources.push_back(from);
    }
    return round;
  }

  // A message's two sides count the pair's messages, apart from the group's collectives.
  void send(const std::string& call, const at::Tensor& value, int to) {
    transport().post({message_key(rank_, to, sent_[to]++)}, {encode({call, {value}})});
  }
  Round receive(const std::string& call, int from) {
    Round round;
    round.operation = "recv";
    round.call = call;
    round.number = received_[from]++;
    round.keys = {message_key(from, rank_, round.number)};
    round.sources = {from};
    return round;
  }
  void skip_send(int to) { ++sent_[to]; }
  void skip_receive(int from) { ++received_[from]; }

  // A collective whose values do not travel.
  void pass(const std::string& operation, const std::string& call) { come_by(begin(operation, call)); }

  bool is_ready(const Round& round) {
    WithoutGil free;
    return round.keys.empty() || transport().has(round.keys);
  }

  // The contributions in the order of round.sources; waits for them.
  std::vector<Contribution> collect(const Round& round) {
    if (round.keys.empty()) return {};
    WithoutGil free;
    auto& transport = this->transport();
    Waiting waiting(*this, round);
    auto began = std::chrono::steady_clock::now();
    std::vector<Bytes> found;
    while ((found = transport.wait_for(round.keys, kSlice)).empty()) {
      waiting.announce();
      raise_if_interrupted();
      auto waited = std::chrono::steady_clock::now() - began;
      look_after_peers(round, waited > kPeersMayLag);
      if (waited > timeout_) give_up(round, "the group's timeout of " + std::to_string(timeout_.count() / 1000) + " s is over");
    }
    std::vector<Contribution> contributions;
    for (size_t i = 0; i < found.size(); ++i) {
      contributions.push_back(decode(found[i]));
      if (contributions.back().call != round.call) mismatch(round, round.sources[i], contributions.back().call);
    }
    if (round.readers_key.empty()) {
      transport.remove(round.keys);
    } else if (transport.count_one(round.readers_key) == round.readers) {
      transport.remove(round.all_keys);
      transport.remove({round.readers_key});
    }
    return contributions;
  }

 private:
  static constexpr std::chrono::milliseconds kSlice{200};
  static constexpr std::chrono::seconds kPeersMayLag{2};  // before asking where they are

  // Tells the launcher, under a key without prefix, what this rank waits for.
  class Waiting {
   public:
    Waiting(Exchange& exchange, const Round& round) : exchange_(exchange), round_(round) {}
    void announce() {
      if (announced_) return;
      announced_ = true;
      std::string json = "{\"operation\":";
      append_json_string(json, round_.operation);
      json += ",\"communicator\":";
      append_json_string(json, exchange_.name_);
      json += ",\"sequence\":" + std::to_string(round_.number) + ",\"ranks\":";
      std::vector<int64_t> ranks;
      for (int source : round_.sources) ranks.push_back(exchange_.members_[source]);
      append_json_ints(json, ranks);
      json += "}";
      exchange_.transport().post_text(key(), json);
    }
    ~Waiting() {
      if (!announced_) return;
      try {
        exchange_.transport().remove({key()});
      } catch (const std::exception&) {
        // The store went away with the launcher; whoever asks next is told.
      }
    }

   private:
    static std::string key() { return "maya/waiting/" + std::to_string(own_global_rank().load()); }
    Exchange& exchange_;
    const Round& round_;
    bool announced_ = false;
  };

  static std::string restart() {
    const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return count ? count : "0";
  }
  static int incarnation(const std::string& name) {
    static auto* mutex = new std::mutex;
    static auto* counts = new std::map<std::string, int>;
    std::lock_guard<std::mutex> lock(*mutex);
    return (*counts)[name]++;
  }

  Round begin(const std::string& operation, const std::string& call) {
    Round round;
    round.operation = operation;
    round.call = call;
    round.number = next_++;
    return round;
  }
  // Where others may wait for this rank in vain, it says what it has called instead.
  void come_by(const Round& round) {
    if (size() == 1 || !transport_or_null()) return;
    transport().post_text(progress_key(rank_), std::to_string(round.number) + " " + round.call);
  }
  std::string message_key(int from, int to, int64_t number) const {
    return base_ + "message/" + std::to_string(from) + "-" + std::to_string(to) + "/" + std::to_string(number);
  }
  std::string progress_key(int rank) const { return base_ + "at/" + std::to_string(rank); }

  Transport* transport_or_null() {
    WithoutGil free;
    std::call_once(opened_, [this] { transport_ = Transport::of(store_); });
    return transport_->reaches_others() ? transport_.get() : nullptr;
  }
  Transport& transport() {
    auto* found = transport_or_null();
    TORCH_CHECK_WITH(DistBackendError, found, "Maya: rank ", members_[rank_], " needs values of the other ranks of process group '", name_,
                     "', but its store does not lead to them: ", transport_->unusable_because(),
                     ". Launch every rank: maya run --nproc-per-node ", size(), " script.py, and let init_process_group use the environment (init_method='env://').");
    return *found;
  }

  std::string ranks_text(const std::vector<int>& group_ranks) const {
    std::string text = group_ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < group_ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(members_[group_ranks[i]]);
    return text;
  }

  // Throws if a missing peer will never come.
  void look_after_peers(const Round& round, bool ask_where) {
    auto& transport = this->transport();
    for (size_t i = 0; i < round.keys.size(); ++i) {
      if (transport.has({round.keys[i]})) continue;
      std::string ended = "maya/ended/" + std::to_string(members_[round.sources[i]]);
      bool is_over = transport.has({ended});
      // It may have posted between the two questions, and then ended.
      if (is_over && !transport.has({round.keys[i]})) give_up(round, ranks_text({round.sources[i]}) + " has ended (" + transport.text(ended) + ")");
      if (!ask_where || round.operation == "recv" || !transport.has({progress_key(round.sources[i])})) continue;
      std::string progress = transport.text(progress_key(round.sources[i]));
      auto space = progress.find(' ');
      int64_t number = std::atoll(progress.c_str());
      if (number >= round.number && !transport.has({round.keys[i]}))
        mismatch(round, round.sources[i], number == round.number ? progress.substr(space + 1) : "something else, and then " + progress.substr(space + 1) + " as number " + std::to_string(number));
    }
  }

  [[noreturn]] void give_up(const Round& round, const std::string& why) {
    C10_THROW_ERROR(DistBackendError, c10::str("Maya: rank ", members_[rank_], " waits in ", round.operation, " (number ", round.number, " of process group '", name_, "') for ",
                                               ranks_text(round.sources), ": ", why, ". On GPUs NCCL would wait until its timeout."));
  }
  [[noreturn]] void mismatch(const Round& round, int other, const std::string& its_call) {
    C10_THROW_ERROR(DistBackendError, c10::str("Maya: ranks ", members_[rank_], " and ", members_[other], " disagree in process group '", name_, "': as number ", round.number, " rank ", members_[rank_],
                                               " calls ", round.call, ", rank ", members_[other], " calls ", its_call,
                                               ". All ranks of a group must call the same collectives in the same order, with tensors of the same dtype and size."));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  std::vector<int64_t> members_;
  std::string name_, base_;
  std::chrono::milliseconds timeout_;
  std::once_flag opened_;
  std::shared_ptr<Transport> transport_;
  std::atomic<int64_t> next_{0};
  std::map<int, int64_t> sent_, received_;
};

}  // namespace maya
