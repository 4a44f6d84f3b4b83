#!/bin/sh
# What `make demo` shows, with the commands it runs. Written files go to demo-output/.
set -eu
run() {
    printf '\n\033[1m$ %s\033[0m\n' "$(shown "$@")"
    "$@"
}
shown() { # the command as one types it
    for word in "$@"; do
        case $word in *' '*) printf '"%s" ' "$word" ;; *) printf '%s ' "$word" ;; esac
    done
}
cd "$(dirname "$0")/.."
mkdir -p demo-output
run sightline doctor
run sightline caption examples --out demo-output/captioned --show --force
run sightline data inspect examples
run sightline data convert examples demo-output/captions.json --to coco-captions --force
run sightline score --refs examples --hyps examples/said.json --html demo-output/scores.html
run sightline index examples --store demo-output/index
run sightline search "a cup of coffee" --store demo-output/index -k 2
run sightline ground examples/coffee.jpg "a spoon beside a cup on a table"
run sightline audit examples/captions.csv || [ $? -eq 1 ] # a noun without support is what it looks for, no failure
cat <<END

Written: $(pwd)/demo-output/captioned   photos with their boxes, and captions.json
         $(pwd)/demo-output/captions.json   the example captions as COCO has them
         $(pwd)/demo-output/scores.html   why each caption scored as it did

To go on with photos of your own:
  source ${VENV:-.venv}/bin/activate
  sightline caption ~/Pictures --out captioned
  sightline --help
END
