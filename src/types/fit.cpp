// types/fit.cpp
#include "types/fit.h"

#include <algorithm>
#include <cstdlib>

namespace magneto::types {

namespace {

constexpr int64_t kMostFactor = 1 << 20, kMostMove = 1 << 10;  // beyond them, products would need more than 64 bits

class Fitting {
 public:
  Fitting(const Points& points, std::span<const int64_t> seen, std::span<const uint32_t> symbols,
          std::span<const Expr> known)
      : points_(points), seen_(seen), known_(known.begin(), known.end()), moved_(symbols.begin(), symbols.end()) {
    for (const size_t s : moved_)
      if (moves_value(s)) followed_.push_back(s);
  }

  std::optional<Expr> run() {
    if (fits(seen_[0])) return Expr(seen_[0]);
    for (const Expr& expr : known_)
      if (fits(expr)) return expr;
    if (!is_seen_together()) return std::nullopt;
    if (auto sum = fit_sum()) return sum;
    if (auto pair = fit_pair()) return pair;
    if (auto multiple = fit_multiple()) return multiple;
    if (auto polynomial = fit_square()) return polynomial;
    if (auto polynomial = fit_bilinear()) return polynomial;
    return fit_product();
  }

 private:
  bool fits(const Expr& expr) const {
    for (size_t p = 0; p < points_.size(); ++p)
      if (expr.evaluate_exactly(points_[p]) != seen_[p]) return false;
    return true;
  }
  std::optional<Expr> if_fits(const Expr& expr) const { return fits(expr) ? std::optional(expr) : std::nullopt; }
  int64_t base(size_t symbol) const { return points_[0][symbol]; }
  static Expr of(size_t symbol) { return Expr::symbol(static_cast<uint32_t>(symbol)); }

  /// The points that differ from the first in this symbol alone.
  std::vector<size_t> along(size_t symbol) const {
    std::vector<size_t> found;
    for (size_t p = 1; p < points_.size(); ++p)
      if (points_[p][symbol] != base(symbol) && differ_only(p, {symbol})) found.push_back(p);
    return found;
  }
  bool differ_only(size_t point, std::initializer_list<size_t> symbols) const {
    return std::all_of(moved_.begin(), moved_.end(), [&](size_t s) {
      return points_[point][s] == base(s) || std::find(symbols.begin(), symbols.end(), s) != symbols.end();
    });
  }
  bool moves_value(size_t symbol) const {
    const std::vector<size_t> line = along(symbol);
    return std::any_of(line.begin(), line.end(), [&](size_t p) { return seen_[p] != seen_[0]; });
  }
  /// Whether each two of the symbols that the numbers follow were moved at once: what they make of one another shows
  /// nowhere else.
  bool is_seen_together() const {
    for (size_t a = 0; a < followed_.size(); ++a)
      for (size_t b = a + 1; b < followed_.size(); ++b) {
        const auto both = [&](const std::vector<int64_t>& point) {
          return point[followed_[a]] != base(followed_[a]) && point[followed_[b]] != base(followed_[b]);
        };
        if (std::count_if(points_.begin(), points_.end(), both) < 2) return false;
      }
    return true;
  }
  /// What is seen where a symbol alone is larger by this.
  std::optional<int64_t> seen_at(size_t symbol, int64_t more) const {
    for (const size_t p : along(symbol))
      if (points_[p][symbol] == base(symbol) + more) return seen_[p];
    return std::nullopt;
  }

  std::optional<Expr> fit_sum() const {
    Expr sum = seen_[0];
    for (const size_t s : followed_) {
      const std::vector<size_t> line = along(s);
      const size_t p = line.front();
      const int64_t times = points_[p][s] - base(s), more = seen_[p] - seen_[0];
      if (more % times != 0) return std::nullopt;
      sum = sum + Expr(more / times) * (of(s) - Expr(base(s)));
    }
    return if_fits(sum);
  }

  std::optional<Expr> fit_pair() const {
    const auto [least, most] = std::minmax_element(seen_.begin(), seen_.end());
    for (size_t a = 0; a < known_.size(); ++a) {
      if (fits(Expr::min(known_[a], *most))) return Expr::min(known_[a], *most);
      if (fits(Expr::max(known_[a], *least))) return Expr::max(known_[a], *least);
      for (size_t b = a; b < known_.size(); ++b) {
        for (const Expr& expr :
             {known_[a] * known_[b], Expr::min(known_[a], known_[b]), Expr::max(known_[a], known_[b])})
          if (fits(expr)) return expr;
      }
    }
    return std::nullopt;
  }

  // a * e + b, (a * e + b) // c, where e is a symbol or known
  std::optional<Expr> fit_multiple() const {
    std::vector<Expr> terms;
    for (const size_t s : followed_) terms.push_back(of(s));
    for (const Expr& expr : known_)
      if (!expr.is_constant()) terms.push_back(expr);
    for (const Expr& term : terms)
      if (auto found = fit_multiple_of(term)) return found;
    return std::nullopt;
  }
  std::optional<Expr> fit_multiple_of(const Expr& term) const {
    std::vector<int64_t> at;
    for (const std::vector<int64_t>& point : points_) {
      const auto value = term.evaluate_exactly(point);
      if (!value || std::abs(*value) > kMostFactor * kMostMove) return std::nullopt;
      at.push_back(*value);
    }
    const auto far = static_cast<size_t>(
        std::max_element(at.begin(), at.end(),
                         [&](int64_t a, int64_t b) { return std::abs(a - at[0]) < std::abs(b - at[0]); }) -
        at.begin());
    const int64_t run = at[far] - at[0], rise = seen_[far] - seen_[0];
    if (run == 0) return std::nullopt;
    if (rise % run == 0)
      if (auto found = if_fits(Expr(rise / run) * term + Expr(seen_[0] - rise / run * at[0]))) return found;
    std::vector<int64_t> divisors = {2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 32, 64};
    for (const Expr& expr : known_)
      if (const auto number = expr.constant(); number && *number > 1 && *number < 4096) divisors.push_back(*number);
    for (const int64_t c : divisors)
      for (int64_t a = std::max<int64_t>(1, c * rise / run - 1); a <= c * rise / run + 1; ++a) {
        int64_t least = INT64_MIN / 2, most = INT64_MAX / 2;  // of b: each point narrows it
        for (size_t p = 0; p < at.size(); ++p) {
          least = std::max(least, c * seen_[p] - a * at[p]);
          most = std::min(most, c * seen_[p] - a * at[p] + c - 1);
        }
        if (least > most) continue;
        const int64_t b = least <= 0 && most >= 0 ? 0 : least;
        if (auto found = if_fits(Expr::floor_div(Expr(a) * term + Expr(b), c))) return found;
      }
    return std::nullopt;
  }

  std::optional<Expr> fit_square() const {
    if (followed_.size() != 1) return std::nullopt;
    const size_t s = followed_[0];
    const auto one = seen_at(s, 1), two = seen_at(s, 2);
    if (!one || !two) return std::nullopt;
    const int64_t first = *one - seen_[0], second = *two - 2 * *one + seen_[0], at = base(s);
    if (at > kMostFactor || std::abs(first) > kMostFactor || std::abs(second) > kMostFactor) return std::nullopt;
    const int64_t linear = 2 * first - second * (2 * at + 1);
    const int64_t rest = 2 * seen_[0] - second * at * at - linear * at;
    if (second % 2 == 0 && linear % 2 == 0 && rest % 2 == 0)
      return if_fits(Expr(second / 2) * of(s) * of(s) + Expr(linear / 2) * of(s) + Expr(rest / 2));
    return if_fits(Expr::floor_div(Expr(second) * of(s) * of(s) + Expr(linear) * of(s) + Expr(rest), 2));
  }

  // c + a * s + b * t + k * s * t
  std::optional<Expr> fit_bilinear() const {
    if (followed_.size() != 2) return std::nullopt;
    const size_t s = followed_[0], t = followed_[1];
    const auto a = seen_at(s, 1), b = seen_at(t, 1);
    if (!a || !b) return std::nullopt;
    const Expr ds = of(s) - Expr(base(s)), dt = of(t) - Expr(base(t));
    for (size_t p = 1; p < points_.size(); ++p) {
      const int64_t i = points_[p][s] - base(s), j = points_[p][t] - base(t);
      if (i == 0 || j == 0 || std::abs(i) > kMostMove || std::abs(j) > kMostMove || !differ_only(p, {s, t})) continue;
      const int64_t rest = seen_[p] - seen_[0] - i * (*a - seen_[0]) - j * (*b - seen_[0]);
      if (rest % (i * j) != 0) return std::nullopt;
      return if_fits(Expr(seen_[0]) + Expr(*a - seen_[0]) * ds + Expr(*b - seen_[0]) * dt +
                     Expr(rest / (i * j)) * ds * dt);
    }
    return std::nullopt;
  }

  // f(s) * g(t)
  std::optional<Expr> fit_product() const {
    if (followed_.size() != 2) return std::nullopt;
    const std::vector<size_t> lines[] = {along(followed_[0]), along(followed_[1])};
    const auto divides_all = [&](int64_t number, const std::vector<size_t>& line) {
      return std::all_of(line.begin(), line.end(), [&](size_t p) { return seen_[p] % number == 0; });
    };
    constexpr int64_t kMost = 4096;
    for (int64_t g = 1; g <= std::min(kMost, seen_[0]); ++g) {
      if (seen_[0] % g != 0) continue;
      const int64_t f = seen_[0] / g;
      if (!divides_all(g, lines[0]) || !divides_all(f, lines[1])) continue;
      const auto left = fit_factor(followed_[0], lines[0], g), right = fit_factor(followed_[1], lines[1], f);
      if (left && right && fits(*left * *right)) return *left * *right;
    }
    return std::nullopt;
  }
  std::optional<Expr> fit_factor(size_t symbol, const std::vector<size_t>& line, int64_t other) const {
    Points points = {points_[0]};
    std::vector<int64_t> seen = {seen_[0] / other};
    for (const size_t p : line) {
      points.push_back(points_[p]);
      seen.push_back(seen_[p] / other);
    }
    const uint32_t moved[] = {static_cast<uint32_t>(symbol)};
    const Fitting one(points, seen, moved, known_);
    if (auto sum = one.fit_sum()) return sum;
    return one.fit_multiple();
  }

  const Points& points_;
  const std::span<const int64_t> seen_;
  const std::vector<Expr> known_;
  const std::vector<size_t> moved_;
  std::vector<size_t> followed_;  ///< those symbols that the numbers follow
};

}  // namespace

std::optional<Expr> fit(const Points& points, std::span<const int64_t> seen, std::span<const uint32_t> symbols,
                        std::span<const Expr> known) {
  if (points.empty() || points.size() != seen.size()) return std::nullopt;
  return Fitting(points, seen, symbols, known).run();
}

}  // namespace magneto::types
