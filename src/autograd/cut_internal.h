// autograd/cut_internal.h: the cheapest set of edges that separates two vertices of a network.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace magneto::autograd {

class Network {
 public:
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max() / 4;

  size_t add_vertex();
  void add_edge(size_t from, size_t to, int64_t capacity);

  /// What the cheapest cut costs; kEndless or more: every way over some edges is without a limit.
  int64_t separate(size_t source, size_t sink);
  /// After `separate`: whether the vertex lies after the cut. Of several cheapest cuts it is the one nearest to the
  /// sink.
  bool is_behind(size_t vertex) const { return behind_[vertex]; }

 private:
  struct Edge {
    size_t to = 0;
    int64_t left = 0;  ///< capacity that no flow uses; the edge with number e ^ 1 leads back
  };
  bool find_distances(size_t source, size_t sink);
  int64_t push(size_t source, size_t sink);

  std::vector<Edge> edges_;
  std::vector<std::vector<size_t>> from_;  ///< edges of each vertex
  std::vector<size_t> distance_, next_;
  std::vector<bool> behind_;
};

}  // namespace magneto::autograd
