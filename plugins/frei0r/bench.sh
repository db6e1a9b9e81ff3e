#!/bin/sh
# Compares the frei0r plug-in with ffmpeg's own nlmeans on two clips: bench.sh BUILD_FOLDER [STRENGTH...]
#
# The clips have 12 frames of 640 x 480 pixels and are made here: a camera that moves over the photograph of
# examples/denoise, of which 4 x 3 copies, each beside its mirror image, make a picture; and ffmpeg's mandelbrot, a zoom
# into the set.  Each frame gets Gaussian noise of its own, of 20 levels, by ffmpeg's noise filter.
#
# Prints a table of Markdown for each clip: the PSNR of four frames over red, green and blue against the clean clip, at the best of a few
# strengths for each filter, and the time a frame, the best of three: the difference of a run over all frames and of one over
# the first, divided by the frames between, with kernels that were compiled before.  Patch and window are the same, 5 x 5 and
# 15 x 15, but in the last row, which has nlmeans' defaults, 7 x 7 and 15 x 15.
set -eu

build=${1:?usage: bench.sh BUILD_FOLDER [STRENGTH...]}
shift
strengths=${*:-17 20 23}
picture=$(cd "$(dirname "$0")/../../examples/denoise" && pwd)/clean.png
command -v ffmpeg > /dev/null || { echo "bench.sh: needs ffmpeg (Debian: apt-get install ffmpeg)" >&2; exit 1; }
export OCL_ICD_VENDORS="${OCL_ICD_VENDORS:-/etc/OpenCL/vendors/pocl.icd}" FREI0R_PATH="$build/plugins/frei0r"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
frames=12

quiet() { ffmpeg -hide_banner -nostdin -v error -y "$@"; }
raw='-c:v rawvideo -pix_fmt gbrp'

# The filter's Gaussian noise has a standard deviation of its strength / sqrt(3).
noise='format=gbrp,noise=c0s=35:c0f=t:c0_seed=1:c1s=35:c1f=t:c1_seed=2:c2s=35:c2f=t:c2_seed=3'

# shellcheck disable=SC2086 # words are meant
make_clips()
{
    quiet -i "$picture" -filter_complex \
        '[0]split[a][b];[b]hflip[c];[a][c]hstack,split[d][e];[e]vflip[f];[d][f]vstack,split[g][h];[g][h]hstack' "$work/large.png"
    quiet -loop 1 -i "$work/large.png" -vf "crop=640:480:'min(8*n,384)':'min(n,32)'" -frames:v $frames $raw "$work/photograph.nut"
    quiet -f lavfi -i mandelbrot=size=640x480:rate=24:end_scale=0.01:end_pts=96 -frames:v $frames $raw "$work/mandelbrot.nut"
    for clip in photograph mandelbrot; do
        quiet -i "$work/$clip.nut" -vf "$noise" $raw "$work/$clip-noisy.nut"
    done
}

# psnr CLIP FILTER: dB of the noisy clip, filtered.
psnr()
{
    ffmpeg -hide_banner -nostdin -i "$work/$1-noisy.nut" -i "$work/$1.nut" \
        -lavfi "[0]trim=end_frame=4,$2,format=gbrp[a];[1]trim=end_frame=4,format=gbrp[b];[a][b]psnr" -f null - 2>&1 |
        sed -n 's/.*average:\([0-9.]*\).*/\1/p'
}

# seconds CLIP COUNT FILTER: for the first frames.
seconds()
{
    started=$(date +%s.%N)
    quiet -i "$work/$1-noisy.nut" -vf "$3" -frames:v "$2" -f null -
    echo "$started $(date +%s.%N)" | awk '{ print $2 - $1 }'
}

# a_frame CLIP FILTER: milliseconds a frame.
a_frame()
{
    for _ in 1 2 3; do
        one=$(seconds "$1" 1 "$2")
        all=$(seconds "$1" $frames "$2")
        echo "$one $all $frames" | awk '{ printf "%.1f\n", ($2 - $1) * 1000 / ($3 - 1) }'
    done | sort -n | head -n 1
}

# best CLIP: of the filters that are given on stdin, "PSNR FILTER" of the best.
best()
{
    while read -r filter; do
        echo "$(psnr "$1" "$filter") $filter"
    done | sort -rn | head -n 1
}

ours() { for s in $strengths; do echo "$s" | awk '{ printf "frei0r=clattn_denoise:%.6f\n", $1 / 255 }'; done; }
theirs() { for s in 5.5 6.5 7.5 8.5; do echo "format=yuv444p,nlmeans=s=$s:$1"; done; }

make_clips
for clip in photograph mandelbrot; do
    printf '\n| %s, 640 x 480 | PSNR | ms a frame |\n| --- | --- | --- |\n' "$clip"
    echo "| the noisy clip | $(psnr $clip null) dB | |"
    for row in ours 'theirs p=5:r=15' 'theirs p=7:r=15'; do
        $row | best $clip | while read -r value filter; do
            echo "| \`$filter\` | $value dB | $(a_frame $clip "$filter") |"
        done
    done
done
