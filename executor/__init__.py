"""The real world: the same actions on real devices. Nothing is here yet; see CHANGELOG.md."""
