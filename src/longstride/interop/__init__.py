"""In and out of other people's formats: models as other libraries read them, and those libraries as decoders."""
