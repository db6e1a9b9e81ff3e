#include "ref/ref.h"

bool ref_neighbour(int p, int j, int length, int window, int dilation, bool clip)
{
    int t = p / dilation, u = j / dilation, members = (length - p % dilation + dilation - 1) / dilation;
    int first = t - window / 2;

    if (!clip)
        first = first < 0 ? 0 : first > members - window ? members - window : first;
    return p % dilation == j % dilation && u >= first && u < first + window;
}
