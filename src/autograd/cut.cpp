// The most that can flow from source to sink is what the cheapest cut costs. Flow is sent along shortest ways, all ways
// of one length at a time (Dinic): the joint graphs of models are long and narrow, and few lengths occur.
#include "autograd/cut_internal.h"

#include <algorithm>

namespace magneto::autograd {

static constexpr size_t kFar = static_cast<size_t>(-1);

size_t Network::add_vertex() {
  from_.emplace_back();
  return from_.size() - 1;
}

void Network::add_edge(size_t from, size_t to, int64_t capacity) {
  from_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  from_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

bool Network::find_distances(size_t source, size_t sink) {
  distance_.assign(from_.size(), kFar);
  std::vector<size_t> queue{source};
  distance_[source] = 0;
  for (size_t i = 0; i < queue.size(); ++i)
    for (const size_t e : from_[queue[i]])
      if (edges_[e].left > 0 && distance_[edges_[e].to] == kFar) {
        distance_[edges_[e].to] = distance_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
  return distance_[sink] != kFar;
}

// One way from source to sink: a walk that goes back where it ends nowhere. No recursion: ways are as long as models.
int64_t Network::push(size_t source, size_t sink) {
  std::vector<size_t> way;
  size_t at = source;
  while (at != sink) {
    size_t& next = next_[at];
    while (next < from_[at].size()) {
      const Edge& edge = edges_[from_[at][next]];
      if (edge.left > 0 && distance_[edge.to] == distance_[at] + 1) break;
      ++next;
    }
    if (next < from_[at].size()) {
      way.push_back(from_[at][next]);
      at = edges_[way.back()].to;
    } else if (way.empty()) {
      return 0;
    } else {
      at = edges_[way.back() ^ 1].to;
      way.pop_back();
      ++next_[at];
    }
  }
  int64_t flow = kEndless;
  for (const size_t e : way) flow = std::min(flow, edges_[e].left);
  for (const size_t e : way) {
    edges_[e].left -= flow;
    edges_[e ^ 1].left += flow;
  }
  return flow;
}

int64_t Network::separate(size_t source, size_t sink) {
  int64_t total = 0;
  while (total < kEndless && find_distances(source, sink)) {
    next_.assign(from_.size(), 0);
    while (const int64_t flow = push(source, sink)) {
      total += flow;
      if (total >= kEndless) return total;
    }
  }
  behind_.assign(from_.size(), false);
  std::vector<size_t> queue{sink};
  behind_[sink] = true;
  for (size_t i = 0; i < queue.size(); ++i)
    for (const size_t e : from_[queue[i]])
      if (edges_[e ^ 1].left > 0 && !behind_[edges_[e].to]) {  // the edge that leads here has room
        behind_[edges_[e].to] = true;
        queue.push_back(edges_[e].to);
      }
  return total;
}

}  // namespace magneto::autograd
