// Variances of many short maps, and their gradients: one map at a time, all of it in cache.
//
// Logits, weights and deviations are in double: nearly uniform rows lose their digits in float, nearly one-hot rows those
// of the slope. The products that make the gradient are in float, as the operands are.
#include "row_variance.hpp"

#include <algorithm>
#include <limits>

#include "parallel.hpp"

namespace geoattn::GEOATTN_ISA {
namespace {

// Four doubles or eight floats, at any address.
typedef double Doubles __attribute__((vector_size(32), aligned(8), may_alias));
typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef float Quarters __attribute__((vector_size(16), aligned(4), may_alias));
typedef std::int64_t Integers __attribute__((vector_size(32), aligned(8), may_alias));
constexpr int LANES = 4, ROWS = 6;  // a tile of logits, ROWS x (2 LANES), stays in registers

inline double sum(Doubles x) { return (x[0] + x[1]) + (x[2] + x[3]); }
inline const Doubles& at(const double* x) { return *reinterpret_cast<const Doubles*>(x); }
inline Doubles& at(double* x) { return *reinterpret_cast<Doubles*>(x); }
inline const Floats& at(const float* x) { return *reinterpret_cast<const Floats*>(x); }

// x becomes exp(x), for x <= 0, to 1e-11 and far better near 0, where rows are nearly uniform and deviations small; 1e-304
// stands for all that is smaller. NaN stays NaN.
inline void exponentiate(Doubles& x) {
    constexpr double SHIFT = 0x1.8p52, LOG2E = 0x1.71547652b82fep0, LN2_HIGH = 0x1.62e42fefa3800p-1, LN2_LOW = 0x1.ef35793c76730p-45;
    // Taylor: the first term left out is 7e-12 at |r| = ln(2) / 2
    constexpr double OVER[] = {1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    const Doubles least = Doubles{} - 700.0, y = x < least ? least : x;
    const Doubles shifted = y * LOG2E + SHIFT, k = shifted - SHIFT;
    const Doubles r = (y - k * LN2_HIGH) - k * LN2_LOW;
    Doubles p = Doubles{} + 1.0 / 362880;
    for (const double over : OVER) p = p * r + over;
    const Integers power = (reinterpret_cast<const Integers&>(shifted) + 1023) << 52;
    x = p * reinterpret_cast<const Doubles&>(power);
}

// What one thread needs for the forward pass of one map. Rows and columns beyond n and m fill up the last tile.
struct Room {
    int n, m, d, rows, columns;
    bool one_more;                            // a column beyond the last whole vector: class token and patches
    std::vector<double> query, key, weights;  // (rows, d), times the scale; (d, columns); (rows, columns)
    std::vector<double> last_key;             // (d): of that column
    std::vector<double> uniform, beyond;      // (columns): 1 / m, 0 beyond m; (LANES): 0 and -infinity, of the last columns
    std::vector<double> of_row;               // (n): what a step found in each row

    Room(int n, int m, int d)
        : n(n), m(m), d(d), rows((n + ROWS - 1) / ROWS * ROWS), columns((m + LANES - 1) / LANES * LANES), one_more(m % LANES == 1),
          query(std::size_t(rows) * d), key(std::size_t(d) * columns), weights(std::size_t(rows) * columns), last_key(d), uniform(columns),
          beyond(LANES), of_row(n) {
        std::fill_n(uniform.begin(), m, 1.0 / m);
        std::fill(beyond.end() - (columns - m), beyond.end(), -std::numeric_limits<double>::infinity());
    }

    void load(const float* q, std::int64_t q_row, const float* k, std::int64_t k_row, double scale) {
        for (int i = 0; i < n; ++i)
            for (int t = 0; t < d; ++t) query[std::size_t(i) * d + t] = scale * q[i * q_row + t];
        int j = 0;
        for (; j + LANES <= m; j += LANES) {  // rows of keys become columns, a few together: whole vectors are stored
            const float *a = k + j * k_row, *b = a + k_row, *c = b + k_row, *e = c + k_row;
            for (int t = 0; t < d; ++t) at(&key[std::size_t(t) * columns + j]) = Doubles{a[t], b[t], c[t], e[t]};
        }
        if (one_more)
            for (int t = 0; t < d; ++t) last_key[t] = k[j * k_row + t];
        else
            for (; j < m; ++j)
                for (int t = 0; t < d; ++t) key[std::size_t(t) * columns + j] = k[j * k_row + t];
    }

    template <int VECTORS> void tile(int i, int j) {
        const double *q = &query[std::size_t(i) * d], *k = &key[j];
        Doubles sums[ROWS][VECTORS] = {};
        for (int t = 0; t < d; ++t, k += columns)
            for (int r = 0; r < ROWS; ++r)
                for (int v = 0; v < VECTORS; ++v) sums[r][v] += q[r * d + t] * reinterpret_cast<const Doubles*>(k)[v];
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < VECTORS; ++v) at(&weights[std::size_t(i + r) * columns + j + v * LANES]) = sums[r][v];
    }

    void products() {
        const int end = one_more ? m - 1 : columns;
        for (int i = 0; i < rows; i += ROWS) {
            int j = 0;
            for (; j + 2 * LANES <= end; j += 2 * LANES) tile<2>(i, j);
            if (j < end) tile<1>(i, j);
        }
        if (!one_more) return;
        for (int i = 0; i < n; ++i) {  // a vector for one column would be as much as for four
            const double* q = &query[std::size_t(i) * d];
            Doubles even = {}, odd = {};
            int t = 0;
            for (; t + 2 * LANES <= d; t += 2 * LANES) {
                even += at(q + t) * at(&last_key[t]);
                odd += at(q + t + LANES) * at(&last_key[t + LANES]);
            }
            double total = sum(even + odd);
            for (; t < d; ++t) total += q[t] * last_key[t];
            at(&weights[std::size_t(i) * columns + m - 1]) = Doubles{total};  // and nothing of the last map in the other lanes
        }
    }

    // From logits to the sum of squared deviations of all rows, and to slopes (n, m) if wanted. NaN stays NaN. Each step goes
    // over all rows before the next: within a row they wait for one another.
    double deviations(double scale, float* slope) {
        for (int i = 0; i < n; ++i) {
            double* w = &weights[std::size_t(i) * columns];
            at(w + columns - LANES) += at(&beyond[0]);
            Doubles tops = at(w);
            for (int j = LANES; j < columns; j += LANES) tops = tops < at(w + j) ? at(w + j) : tops;
            of_row[i] = std::max(std::max(tops[0], tops[1]), std::max(tops[2], tops[3]));
        }
        for (int i = 0; i < n; ++i) {
            double *w = &weights[std::size_t(i) * columns], top = of_row[i];
            Doubles sums = {};
            for (int j = 0; j < columns; j += LANES) {
                Doubles weight = at(w + j) - top;
                exponentiate(weight);
                sums += at(w + j) = weight;
            }
            of_row[i] = sum(sums);
        }
        double total = 0;
        for (int i = 0; i < n; ++i) {
            double *w = &weights[std::size_t(i) * columns], inverse = 1 / of_row[i];
            Doubles spreads = {};
            for (int j = 0; j < columns; j += LANES) {
                const Doubles deviation = (at(w + j) *= inverse) - at(&uniform[j]);
                spreads += deviation * deviation;
            }
            total += of_row[i] = sum(spreads);
        }
        if (slope == nullptr) return total;
        const double factor = 2 * scale / (double(n) * m);
        for (int i = 0; i < n; ++i, slope += m) {
            const double *w = &weights[std::size_t(i) * columns], squares = of_row[i];
            int j = 0;
            for (; j + LANES <= m; j += LANES) {
                const Doubles weight = at(w + j), exact = weight * ((weight - at(&uniform[j])) - squares) * factor;
                *reinterpret_cast<Quarters*>(slope + j) = __builtin_convertvector(exact, Quarters);
            }
            for (; j < m; ++j) slope[j] = float(w[j] * ((w[j] - uniform[j]) - squares) * factor);
        }
        return total;
    }
};

// out (rows, d) = sum over terms of factor (row, term) x (term, d)
struct Product {
    float* out;
    const float* factors;
    int row_step, term_step;  // of the factors
    const float* x;
    std::int64_t x_row;
    int rows, terms, d;

    // `HEIGHT` rows from i, `WIDTH` vectors of columns from c, held in registers.
    template <int HEIGHT, int WIDTH> void tile(int i, int c) const {
        Floats sums[HEIGHT][WIDTH] = {};
        const float *row = x + c, *factor = factors + std::size_t(i) * row_step;
        const std::ptrdiff_t across = row_step;
        int left = terms;
        do {
            for (int r = 0; r < HEIGHT; ++r)
                for (int v = 0; v < WIDTH; ++v) sums[r][v] += factor[r * across] * at(row + v * 8);
            row += x_row, factor += term_step;
        } while (--left > 0);
        float* to = out + std::size_t(i) * d + c;
        const std::ptrdiff_t width = d;
        for (int r = 0; r < HEIGHT; ++r)
            for (int v = 0; v < WIDTH; ++v) *reinterpret_cast<Floats*>(to + r * width + v * 8) = sums[r][v];
    }

    template <int WIDTH> int columns(int c) const {
        for (; c + 8 * WIDTH <= d; c += 8 * WIDTH) {
            int i = 0;
            for (; i + 6 <= rows; i += 6) tile<6, WIDTH>(i, c);
            switch (rows - i) {  // the rest in one
                case 5: tile<5, WIDTH>(i, c); break;
                case 4: tile<4, WIDTH>(i, c); break;
                case 3: tile<3, WIDTH>(i, c); break;
                case 2: tile<2, WIDTH>(i, c); break;
                case 1: tile<1, WIDTH>(i, c); break;
            }
        }
        return c;
    }

    void run() const {
        int c = columns<1>(columns<2>(0));
        for (; c < d; ++c)
            for (int i = 0; i < rows; ++i) {
                float sum = 0;
                for (int j = 0; j < terms; ++j) sum += factors[std::size_t(i) * row_step + std::size_t(j) * term_step] * x[j * x_row + c];
                out[std::size_t(i) * d + c] = sum;
            }
    }
};

// work(number of the map, its queries, their row stride, its keys, their row stride), with a `Tools` of its thread.
template <class Tools, class Work> void each_map(const Maps& maps, const Tools& tools, Work work) {
    const std::int64_t per_layer = maps.batch * maps.heads, count = per_layer * std::int64_t(maps.queries.size());
    const int parts = int(std::min<std::int64_t>(count, std::max(1, maps.threads)));
    parallel_for(maps.threads, parts, [&](int part) {
        Tools own = tools;
        for (std::int64_t map = count * part / parts; map < count * (part + 1) / parts; ++map) {
            const Operand &q = maps.queries[map / per_layer], &k = maps.keys[map / per_layer];
            const std::int64_t b = map % per_layer / maps.heads, h = map % maps.heads;
            work(own, map, q.data + b * q.batch + h * q.head, q.row, k.data + b * k.batch + h * k.head, k.row);
        }
    });
}

}  // namespace

void row_variances(const Maps& maps, double scale, float* variance, float* slope) {
    const std::int64_t area = std::int64_t(maps.n) * maps.m;
    each_map(maps, Room(maps.n, maps.m, maps.d),
             [&](Room& room, std::int64_t map, const float* q, std::int64_t q_row, const float* k, std::int64_t k_row) {
                 room.load(q, q_row, k, k_row, scale);
                 room.products();
                 variance[map] = float(room.deviations(scale, slope == nullptr ? nullptr : slope + map * area) / double(area));
             });
}

void row_variance_gradients(const Maps& maps, const Gradients& g) {
    const int n = maps.n, m = maps.m, d = maps.d;
    struct Buffers {
        std::vector<float> slope, key;
    };
    const Buffers buffers{std::vector<float>(std::size_t(n) * m), std::vector<float>(std::size_t(m) * d)};
    each_map(maps, buffers, [&](Buffers& own, std::int64_t map, const float* q, std::int64_t q_row, const float* k, std::int64_t k_row) {
        const std::int64_t layer = map / (maps.batch * maps.heads), within = map % (maps.batch * maps.heads);
        const float *slope = g.slope[layer] + within * n * m, upstream = g.upstream[map];
        float *scaled = own.slope.data(), *key = own.key.data();
        for (int e = 0; e < n * m; ++e) scaled[e] = upstream * slope[e];
        // Rows of the slope sum to 0, so keys may be taken from the first of them: what all have in common only costs digits.
        for (int j = 0; j < m; ++j)
            for (int t = 0; t < d; ++t) key[std::size_t(j) * d + t] = k[j * k_row + t] - k[t];
        Product{g.to_query[layer] + within * n * d, scaled, m, 1, key, d, n, m, d}.run();
        Product{g.to_key[layer] + within * m * d, scaled, 1, m, q, q_row, m, n, d}.run();
    });
}

}  // namespace geoattn::GEOATTN_ISA
