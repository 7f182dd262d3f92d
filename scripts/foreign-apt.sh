# Sourced by scripts that need packages of another suite of Debian: nothing of this machine's apt changes.
#
#   foreign_apt_begin FOLDER SUITE [deb|deb-src]   makes a state of its own there, as if no package was installed
#   foreign_apt WORD...                            apt-get with that state
foreign_apt_begin() {
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  echo "${3:-deb} [signed-by=$keys] http://deb.debian.org/debian $2 main" > "$1/sources.list"
  # As if nothing was installed, so that all that a package needs comes along.
  touch "$1/status"
  foreign_apt_options=(-qq -o "Dir::State::status=$1/status" -o "Dir::State::lists=$1/lists" -o "Dir::Cache=$1/cache"
    -o "Dir::Etc::sourcelist=$1/sources.list" -o Dir::Etc::sourceparts=/dev/null -o APT::Architecture=amd64
    -o APT::Architectures=amd64 -o APT::Sandbox::User=root)
  foreign_apt update
}
foreign_apt() { apt-get "${foreign_apt_options[@]}" "$@"; }
