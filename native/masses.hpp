// The measures of a network's nodes as whole numbers, and how far their mass may have to move.
#pragma once
#include "graph_setup.hpp"
#include "tree_simplex.hpp"

namespace geoattn::GEOATTN_ISA {

// Units of mass. Two thirds of a sign bit and, for the idle mass, a factor of eight are left free.
template <class Mass> constexpr double WHOLE = std::is_same_v<Mass, std::int64_t> ? 0x1p62 : 0x1p125;

// The measure of a node on the classes of its network, as integers. What the row lacks of one is spread in proportion, as
// dividing by the sum would do, but exactly: equal entries stay equal and zeros stay zero. Mass outside the network is left to
// other networks; `guest`: the node itself lies outside, and what it has here stays as it is.
template <class Mass>
inline void round_measure(const double* measure, const Prepared& p, int part, int n, double whole, bool guest, Mass* mass) {
    double outside = 0;
    Mass inside = 0;
    int largest = -1;
    for (int v = 0; v < n; ++v) {
        if (p.part[v] != part) {
            outside += measure[v];
            continue;
        }
        const Mass m = Mass(measure[v] * whole + 0.5);
        mass[p.label[v]] += m;
        inside += m;
        if (largest < 0 || measure[v] > measure[largest]) largest = v;
    }
    if (guest) return;
    Mass lack = Mass((1.0 - outside) * whole) - inside;
    const double spread = as_double(lack);
    for (int v = 0; v < n; ++v) {
        if (p.part[v] != part) continue;
        const Mass share = Mass(spread * measure[v]);
        mass[p.label[v]] += share;
        lack -= share;
    }
    mass[p.label[largest]] += lack;
}

// The measures of all nodes that the pairs name, rounded to units of one kind of mass.
template <class Mass> struct Masses {
    double whole;
    Mass idle;
    int classes;
    std::vector<Mass> data;

    Masses(const Job& job, std::int64_t g, const Prepared& p, int part, const std::vector<int>& named, int classes, Crew& crew)
        : whole(job.idle > 0 ? WHOLE<Mass> / 8 : WHOLE<Mass>), idle(Mass(job.idle * whole)), classes(classes),
          data(named.size() * std::size_t(classes), 0) {
        const double* measures = job.measures + g * std::size_t(job.n) * job.n;
        crew.each_block(int(named.size()), [&](int from, int end) {
            for (int k = from; k < end; ++k)
                round_measure(measures + std::size_t(named[k]) * job.n, p, part, job.n, whole, p.part[named[k]] != part,
                              &data[std::size_t(k) * classes]);
        });
    }
    const Mass* operator[](int slot) const { return &data[std::size_t(slot) * classes]; }
};

// Where mass may move: between so many classes, over edges no longer than what lies between them.
struct Moves {
    int classes;
    double diameter;
};

// Of the two measures alone: a token at distance 1e27 that neither of them knows has no part in the error of a W1 of 0.1.
inline Moves moves_of(const Network& net, const Prepared& p, int part, const double* measures, int x, int y, int n) {
    const double *from = measures + std::size_t(x) * n, *to = measures + std::size_t(y) * n;
    std::vector<char> touched(net.n, 0);
    if (p.part[x] == part) touched[p.label[x]] = touched[p.label[y]] = 1;  // idle mass
    for (int v = 0; v < n; ++v)
        if (p.part[v] == part && (from[v] > 0 || to[v] > 0)) touched[p.label[v]] = 1;
    Moves moves{0, 0.0};
    for (int a = 0; a < net.n; ++a) {
        if (!touched[a]) continue;
        ++moves.classes;
        for (int b = 0; b < net.n; ++b)
            if (const double apart = touched[b] ? net.distance(a, b) : INF; apart < INF) moves.diameter = std::max(moves.diameter, apart);
    }
    return moves;
}

}  // namespace geoattn::GEOATTN_ISA
