#!/bin/sh
# What `make demo` shows, with the commands it runs. Written files go to demo-output/.
set -eu
run() {
    printf '\n\033[1m$ %s\033[0m\n' "$*"
    "$@"
}
cd "$(dirname "$0")/.."
mkdir -p demo-output
run sightline doctor
run sightline caption examples --out demo-output/captioned --show --force
run sightline data inspect examples
run sightline data convert examples demo-output/captions.json --to coco-captions --force
run sightline data inspect demo-output/captions.json
run sightline score --refs examples --hyps examples/said.json --html demo-output/scores.html
printf '\nWritten: %s\n' "$(pwd)/demo-output/captioned" "$(pwd)/demo-output/captions.json" "$(pwd)/demo-output/scores.html"
