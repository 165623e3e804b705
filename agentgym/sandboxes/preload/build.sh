#!/bin/sh
L=/tmp/zig/v/lib/python3.11/site-packages/ziglang/lib/libc/include
cd "$(dirname "$0")"
for m in x86_64 aarch64; do
 nice ${CC:-/tmp/zig/v/bin/python -m ziglang cc} -target $m-linux-musl -shared -nostdlib $(for i in $m-linux-musl generic-musl $([ $m = x86_64 ] && echo x86-linux-any) $m-linux-any any-linux-any; do echo -isystem $L/$i; done) -fPIC -O2 -s -Wall -Wno-unused-parameter -fvisibility=hidden -fno-stack-protector -fno-builtin -fno-sanitize=all $( [ $m = aarch64 ] && echo -mno-outline-atomics ) -Wl,-soname,episode.so "-DEPISODE_FILE=\"/run/episode/state\"" "-DSOURCE=\"$(sha256sum episode.c | cut -c1-64)\"" episode.c -o episode-$m.so || exit 1
done
ls -la
