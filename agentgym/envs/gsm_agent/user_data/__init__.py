"""Problems of users: reading, taking apart, and checks."""
