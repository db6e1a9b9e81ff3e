#!/bin/sh
# Compares clattn denoise with ffmpeg's nlmeans on examples/denoise/noisy.png: denoise.sh BUILD_FOLDER
#
# Prints two tables of Markdown.  The first has the PSNR against clean.png, by ffmpeg's psnr filter over red, green and blue:
# of clattn by strength, and of ffmpeg at the best of a grid, once with the same patch and window and once with any.  The
# second has the time for a picture of 1024 x 1024 pixels (the sample 4 x 4 times) with the same patch and window: nlmeans,
# nlmeans_opencl on PoCL, and clattn on PoCL.  ffmpeg's time is the difference of many frames and one; clattn's is from
# planning to the last tile, with kernels that were compiled before.
set -eu

build=${1:?usage: denoise.sh BUILD_FOLDER}
here=$(cd "$(dirname "$0")/../examples/denoise" && pwd)
command -v ffmpeg > /dev/null || { echo "denoise.sh: needs ffmpeg (Debian: apt-get install ffmpeg)" >&2; exit 1; }
export OCL_ICD_VENDORS="${OCL_ICD_VENDORS:-/etc/OpenCL/vendors/pocl.icd}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quiet() { ffmpeg -hide_banner -nostdin -v error -y "$@"; }

# psnr FILE: its PSNR in dB.
psnr()
{
    ffmpeg -hide_banner -nostdin -i "$1" -i "$here/clean.png" -lavfi '[0]format=gbrp[a];[1]format=gbrp[b];[a][b]psnr' \
        -f null - 2>&1 | sed -n 's/.*average:\([0-9.]*\).*/\1/p'
}

# nlmeans FORMAT S P R: "PSNR FORMAT S P R".
nlmeans()
{
    quiet -i "$here/noisy.png" -vf "format=$1,nlmeans=s=$2:p=$3:r=$4" "$work/ffmpeg.png"
    echo "$(psnr "$work/ffmpeg.png") $*"
}

grid()
{
    for format in yuv444p gbrp; do
        for s in $1; do
            for p in $2; do
                for r in $3; do
                    nlmeans "$format" "$s" "$p" "$r"
                done
            done
        done
    done | sort -rn | head -n 1
}

strengths='14 16 18 19 20 21 22 24'
: > "$work/clattn"
for s in $strengths; do
    "$build/src/clattn" denoise "$here/noisy.png" "$work/clattn.png" --strength "$s" > /dev/null
    echo "$(psnr "$work/clattn.png") $s" >> "$work/clattn"
done
ours=$(sort -rn "$work/clattn" | head -n 1)
same=$(grid '4 4.5 5 5.5 6 6.5 7 7.5 8 9 10' 5 15)
best=$(grid '4.5 5 5.5 6 6.5 7 7.5 8' '3 5 7' '7 9 11 13 15 21')

echo '| what | patch | window | strength | PSNR |'
echo '| --- | --- | --- | --- | --- |'
echo "| the noisy picture | | | | $(psnr "$here/noisy.png") dB |"
echo "$ours" | while read -r value s; do echo "| \`clattn denoise\` | 5 x 5 | 15 x 15 | $s | $value dB |"; done
for each in "$same" "$best"; do
    echo "$each" | while read -r value format s p r; do
        echo "| ffmpeg's \`nlmeans\`, $format | $p x $p | $r x $r | $s | $value dB |"
    done
done
echo
echo "clattn by strength: $(awk '{ printf "%s%s: %s", (NR > 1 ? ", " : ""), $2, $1 }' "$work/clattn")"
echo

quiet -loop 1 -i "$here/noisy.png" -vf tile=4x4 -frames:v 1 "$work/large.png"

# frames COUNT FILTER [OPTION...]: seconds for so many frames of the large picture.
frames()
{
    count=$1 filter=$2
    shift 2
    started=$(date +%s.%N)
    quiet "$@" -loop 1 -i "$work/large.png" -vf "$filter" -frames:v "$count" -f null -
    echo "$started $(date +%s.%N)" | awk '{ print $2 - $1 }'
}

# a_frame FILTER [OPTION...]: seconds a frame, the best of three.
a_frame()
{
    for _ in 1 2 3; do
        one=$(frames 1 "$@")
        many=$(frames 6 "$@")
        echo "$one $many" | awk '{ printf "%.3f\n", ($2 - $1) / 5 }'
    done | sort -n | head -n 1
}

ours_seconds()
{
    for _ in 1 2 3 4; do
        "$build/src/clattn" denoise "$work/large.png" "$work/clattn.png" --strength 20 --json |
            sed 's/.*"seconds": \([0-9.]*\).*/\1/'
    done | sort -n | head -n 1
}

echo '| 1024 x 1024, patch 5 x 5, window 15 x 15 | seconds |'
echo '| --- | --- |'
echo "| \`clattn denoise\` | $(ours_seconds) |"
echo "| \`nlmeans\`, yuv444p | $(a_frame 'format=yuv444p,nlmeans=s=6:p=5:r=15') |"
echo "| \`nlmeans_opencl\`, yuv444p | $(
    a_frame 'format=yuv444p,hwupload,nlmeans_opencl=s=6:p=5:r=15,hwdownload,format=yuv444p' \
    -init_hw_device opencl=ocl -filter_hw_device ocl) |"
